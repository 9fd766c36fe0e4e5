"""The Ray Serve half: ingress, router, draft pools and verifier, and the HTTP protocol they speak."""
