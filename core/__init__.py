"""The algorithm: coupled sampling, models and caches, draft and verify engines, the wire, the family.

Nothing here knows Ray or HTTP; `serve_app` and `train_jobs` import this package, never the other way round.
"""
