"""The deployments of a service, as Serve sees them: thin actors around plain objects.

ingress           the deployment behind the HTTP proxy
task_router       which task a prompt is of
draft_pool        the replicas of one draft
draft_check       replays samples of drafted answers, to find drafts that do worse in service
target_verifier   the target; `verifier_router` says how Serve chooses one for a generation
"""
