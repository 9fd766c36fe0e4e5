"""The models of a service: the target, the drafts and the router of a bundle, and the plan that says which serve."""
