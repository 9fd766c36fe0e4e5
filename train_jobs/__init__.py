"""Retraining on Ray: find the tasks in prompts, train a draft for each, publish the better ones. See README.md here.

Rooms, and the rooms each may import (tests/test_layout.py holds this):

    config, configs/  the YAML configuration (LoRA rank, steps, seeds, ...); shipped files     -
    cluster           actors, progress and a Ray of its own; what Ray does not document        -
    work              the work directory: results of stages, each tied to its inputs           -
    report            the HTML page made from the figures of a retraining                      work
    prompts           prompts from files or traces, their splits; the router's prompts         work
    drafts            which drafts are trained, what they cost, and their scores               cluster, work
    stages            one file per stage of a retraining                                       those above
    retrain           the stages in order; `taskspec draft make`                               those above but prompts
    watch             `taskspec retrain --watch`: when to retrain                              cluster, work, stages,
                                                                                           retrain
    cli               the commands, and a retraining as a Ray Job                              cluster, work, stages,
                                                                                           retrain, watch

Every room may import `config`. The algorithms are in `core`; nothing here imports `serve_app`.
"""
