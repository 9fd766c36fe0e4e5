"""Deploying: what is asked before, the applications of a bundle, and the rollout from one bundle to the next."""
