"""Deploying on Serve: applications with their replicas and autoscaling, canaries and the rollout of new bundles.

applications          every Serve application of a service
bundle_applications   those of a bundle: draft pools and router
draft_scaling         how many replicas Serve gives a draft pool
deploy_service        deploys a service, and waits until it runs
bundle_pools          starts the pools of a bundle in a running service, and ends those that nothing uses
rollout               the actor that takes up new bundles, as `core.rollout` decides
preflight             what the nodes of a cluster are asked before
failures              what Serve says of an application that does not run, in a line
"""
