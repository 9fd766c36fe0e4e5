"""Retraining on Ray: find the tasks in prompts, train a draft for each, publish the better ones. See README.md here.

stages/             one file per stage of a retraining: collect partition align router evaluate publish study report
pipeline            runs the stages in order, each once
workspace           the work directory: inputs and results of every stage
artefacts           the files that stages leave for each other
cached_step         a directory of results that is tied to its inputs
config, configs/    the YAML configuration (LoRA rank, steps, seeds, ...); four shipped files
models              the target and the draft that a configuration names
prompt_sources      prompts from generators, JSONL files or traces; their splits
training_runs       the plan of the align stage: the base, an adapter per task and seed, and the controls
candidates          the drafts that compete for a slot
scoring             acceptance of drafts on held-out traces
make_draft          `taskspec draft make`: a draft for a target that has none
vocabularies        the ids that a promoted draft's head is cut to, where that pays
labelled_prompts    the router's training prompts; router_baselines: BERT-mini, nearest centroid
lone_worker         a Ray Train run without a process group
workers             work spread over the cluster; progress, progress_view: one view of all of it
findings, report/   the figures of a retraining; the HTML page made from them
cli, outcome, job   `taskspec retrain`, `stage`, `draft make`, `traces import`; results; a retraining as a Ray Job
own_ray             the Ray of one command
in_memory           retrainings that leave nothing of a prompt on a disk
watch               `taskspec retrain --watch`: when to retrain; watched_traces: the answers that it compares
family/             builds the shipped target and draft: task corpora, tokenizer, training

The algorithms are in `core.tasks`, `core.distill` and `core.bundle`. Nothing here imports `serve_app`.
"""
