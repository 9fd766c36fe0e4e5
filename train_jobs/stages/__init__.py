"""The stages of a retraining, one file each, in the order of `STAGES`.

A stage is a function `run(work, progress)`: it reads the results of earlier stages from the `Workspace` and writes its
own into the directory that `work.steps[name].start()` returns. To add a stage: its name here, its inputs in
`train_jobs.workspace`, the format of its result in `train_jobs.artefacts`, its function in `train_jobs.pipeline`, and
its line in the help of `taskspec stage` (`train_jobs.cli`).
"""

from __future__ import annotations

from typing import Literal, get_args

StageName = Literal["collect", "partition", "align", "router", "evaluate", "publish", "report"]
STAGES: tuple[StageName, ...] = get_args(StageName)
