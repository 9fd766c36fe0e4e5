"""The work directory of a retraining: what its stages leave for each other, and when a result still holds.

workspace     where the results of every stage lie
artefacts     the formats of the files
findings      the figures of a retraining: the format of findings.json
cached_step   a directory of results that is tied to its inputs
models        the target and the draft that a configuration names
in_memory     retrainings that leave nothing of a prompt on a disk
"""
