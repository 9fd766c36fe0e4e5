"""OpenMP's settings for processes that run a target on several threads: how long a thread spins before it sleeps.

By default that is milliseconds, which after a pass belong to the draft where cores are few. Without any spinning, every
product waits for threads to wake. Milliseconds for a token of the 100M target with its task's draft, on two cores, when
torch computed it: 5.6 by default, 4.8 to 5.1 with 20,000 to 100,000 turns, 6.8 with none. The kernels run on the OpenMP
that torch has loaded where it has, so one setting serves both.
"""

from __future__ import annotations

TEAM = {"GOMP_SPINCOUNT": "100000"}
"""Environment variables; read when torch is imported, so a process must be started with them or set them before."""
