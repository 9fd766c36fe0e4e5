"""The service on Ray Serve.

actors      the deployments, thin around plain objects    answer, models, telemetry
answer      the life of one answer in the ingress         models, telemetry
deploy      Serve applications, preflight, rollout        actors, models, telemetry
models      the models of a service, and which serve      -
telemetry   metrics, reports, logs                        models
"""
