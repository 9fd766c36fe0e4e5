"""The Ray Serve deployments (ingress, task router, draft pools, target verifier) and the calls between them."""
