"""What OpenMP is told in processes that run a target on several threads.

Between two products a thread of the team spins before it sleeps, by default for milliseconds, which after a pass are
the draft's where cores are few; without spinning every product waits to be woken for. On two cores, in ms for a token
of the 100M target with its task's draft, when torch computed it: 5.6 by default, 4.8 to 5.1 with 20,000 to 100,000
turns, 6.8 with none. Compiled loops have a team of their own, whose OpenMP is told the same.
"""

from __future__ import annotations

TEAM = {"GOMP_SPINCOUNT": "100000"}
"""Environment variables; read when torch is imported, so a process must be started with them or set them before."""
