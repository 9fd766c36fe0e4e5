"""Bundles: the adapters and the router that training publishes and services load.

store           publish, open, block, compare and prune bundles in a directory
proven          which bundles a service takes up without a trial
shadow_results  what bundles would have had accepted on recorded answers
manifest        the JSON file of a bundle: which blob serves which task, and why
blobs           immutable directories (an adapter, a router) named by the hash of their content

`serve_app` reads bundles, and blocks those that do worse; `train_jobs` publishes them.
"""
