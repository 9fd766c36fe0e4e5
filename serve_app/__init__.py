"""The service on Ray Serve, the HTTP protocol in front of it, and the `taskspec` command.

applications   a service, or a pool of it, as `serve run` takes them
config         one service as one YAML file; `configs` has the shipped ones
application_names  names of Serve applications and keys of drafts
access_config  its sections on who may use the HTTP server, and how much
spans          spans of requests for OpenTelemetry, which every part begins and hands on
hosting        brings a service up, on a Ray of its own (`local_cluster`) or on a running cluster
ray_private    all that is used of Ray without a public name
connection     connects a command to the Ray of a running service
operations     what operators see of a running service and change in it, by commands and on the console
draining       takes a node out of a cluster while it serves
console        the page for browsers, what it reads, and the actions of an operator
deployments    actors (ingress, task router, draft pools, target verifier), the life of an answer, deploying, telemetry
api            the FastAPI application: routes of every protocol, forms of errors
http           the core of all protocols: from a request's fields to the pieces of its answer
protocols      openai, responses, anthropic: leaves that translate
client         a client of any OpenAI-compatible server
access         API keys, limits per key, CORS, request ids, the access log
cli            `taskspec`: demo, serve, chat, bench, status, scale, drain, bundles, keys; other packages add commands
demo           `taskspec demo`: every draft compared with plain decoding, over HTTP
examples       clients to begin with, with OpenAI's official library
audit          `taskspec audit`: recorded answers held to plain decoding
monitoring     a Grafana dashboard and Prometheus alert rules
load           `taskspec bench`: load on any OpenAI-compatible server
terminal       progress and transcripts in a terminal or a pipe

Imports go down: `deployments` runs in replicas and imports neither `hosting` nor `cli`, which run in an operator's
process; tests/test_layout.py holds what each room may import.
README.md in this directory leads to the pages on how to run it. The algorithm itself is in `core`; `train_jobs` is
never imported.
"""
