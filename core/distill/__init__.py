"""Training a draft to imitate the target, and deciding whether the result is better.

record, traces              an answer of the target; the store of the answers that a service gave
trace_writer                the thread that writes a service's answers to the store
trace_reservoir             what waits for it where every client has a bounded number of answers kept
memory_files                directories on a memory file system, for traces of which no disk has anything
answering, dataset          answers for prompts that have none; the target's log-probabilities as a training set
draft_making                a draft made from the target's own layers, or as a narrow copy of it
learner, alignment          the draft during training; the training loop with early stopping and checkpoints
replay, promotion           acceptance of any draft on recorded answers; the choice of the draft for a slot
competition                 replay of a draft beside what the verify engine looks up
shadow                      replay of one bundle's drafts against another's, as a service would have routed its answers
vocabulary_size             the choice of a draft vocabulary's size, by cost and acceptance as measured

This room imports `core.model`, `core.sampling`, `core.policy`, `core.verify` (answering and competition: the engine
that serves, and its sources), `core.tasks` (shadow: the router) and `core.bundle` (atomic files, the evidence in a
manifest, bundles). Of the service the ingress imports it for the traces, and the command line for shadows.
"""
