"""The models of a service, and the plan that says which bundle serves.

served_models    the bundle of a service, opened: a draft for each task, and a router
target_loading   the target, with the KV cache, threads and numerics of the configuration
draft_loading    drafts; on a CPU without torch
plan             what passes between the rollout and the ingress: which bundle serves, and how its drafts do
"""
