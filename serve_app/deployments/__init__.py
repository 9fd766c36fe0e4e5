"""The deployments (ingress, task router, draft pools, target verifier, rollout) and the calls between them."""
