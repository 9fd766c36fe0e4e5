"""The drafts of a retraining.

candidates      the drafts that compete for a slot, and their names
training_runs   the plan of the align stage: the base, an adapter per task and seed, and the controls
loading         the target and drafts, loaded to run
scoring         acceptance and times on held-out traces
costs           what passes of the target and drafted tokens cost here
"""
