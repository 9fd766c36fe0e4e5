"""Measurements that a person reads, a command each; where a target runs in the command's own process, OpenMP is told
here, before torch is imported, what a verifier's process is told.
"""

import os

from core.model.cpu.openmp import TEAM

os.environ.update(TEAM | dict(os.environ))
