"""What random walks over sessions share: so few pages that they run short, and the texts that sessions begin with."""

from __future__ import annotations

NUM_PAGES = 9
TEXTS = [[step * position % 50 for position in range(1024)] for step in (7, 11)]
