"""Training a draft to imitate the target.

answering     answers of the target to prompts that have none
dataset       the target's log-probabilities as a training set
draft_making  a draft made from the target's own layers, or as a narrow copy of it
learner       the draft during training
losses        what it is trained with, by name
muon          the optimizer of its matrices
alignment     the training loop, with early stopping and checkpoints
"""
