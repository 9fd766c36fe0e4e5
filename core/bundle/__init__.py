"""Bundles: the adapters and the router that training publishes and services load.

store                       publish, open, block, roll back, compare and prune bundles in a directory
proven                      which bundles a service takes up without a trial
manifest                    the JSON file of a bundle: which blob serves which task, and why
blobs                       immutable directories (an adapter, a router) named by the hash of their content
atomic_files                files that appear by one rename; used by `core.distill` and `train_jobs` too

This room imports nothing of `core` but `core.errors`. `serve_app` reads bundles; `train_jobs` publishes them.
"""
