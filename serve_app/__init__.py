"""The service on Ray Serve, the HTTP protocol in front of it, and the `taskspec` command.

applications   every Serve application of a service, and their deployment
config         one service as one YAML file; `configs` has the shipped ones
hosting        brings a service up, on a Ray of its own (`local_cluster`) or on a running cluster
deployments    ingress, task router, draft pools, target verifier and rollout, and the calls between them
openai         the OpenAI-compatible protocol: requests, responses, streams, errors, and a client
cli            `taskspec`: demo, serve, bundles
demo           `taskspec demo`: every draft compared with plain decoding, over HTTP
load           `taskspec bench`: load on any OpenAI-compatible server
terminal       progress and transcripts in a terminal or a pipe

README.md in this directory explains how to run it. The algorithm itself is in `core`; `train_jobs` is never imported.
"""
