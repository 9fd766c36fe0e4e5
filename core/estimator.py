"""How often a draft's proposals are accepted: one estimate per adapter and position, read by everyone who asks.

Enters: one observation per verified run. Leaves: E(k), the tokens a pass with k proposals is expected to commit.
"""

from __future__ import annotations

from collections import OrderedDict

MEMORY = 200.0  # runs an estimate effectively remembers
PRIOR_ACCEPTANCE = 0.7
PRIOR_WEIGHT = 4.0  # runs the prior is worth


class PositionEstimate:
    """Decayed counts of how often the proposal at one position was reached and accepted."""

    def __init__(self) -> None:
        self.tried = PRIOR_WEIGHT
        self.accepted = PRIOR_WEIGHT * PRIOR_ACCEPTANCE

    def observe(self, accepted: bool) -> None:
        keep = 1.0 - 1.0 / MEMORY
        self.tried = self.tried * keep + 1.0
        self.accepted = self.accepted * keep + accepted

    @property
    def mean(self) -> float:
        return self.accepted / self.tried

    @property
    def deviation(self) -> float:
        """Standard deviation of the Beta posterior with these counts."""
        return float((self.mean * (1.0 - self.mean) / (self.tried + 1.0)) ** 0.5)


class AcceptanceEstimator:
    """Acceptance per (adapter, position); adapters not heard of for long are forgotten.

    The adapter label comes from the draft itself and is not trusted: it only ever costs speed, and their number is
    bounded.
    """

    def __init__(self, max_adapters: int = 256) -> None:
        self._max_adapters = max_adapters
        self._positions: OrderedDict[str, list[PositionEstimate]] = OrderedDict()

    def observe(self, adapter: str, proposed: int, accepted: int) -> None:
        """One verified run: positions up to the first rejection were tried, later ones were not."""
        positions = self._of(adapter, proposed)
        for position in range(min(accepted + 1, proposed)):
            positions[position].observe(position < accepted)

    def acceptance(self, adapter: str, position: int) -> PositionEstimate:
        return self._of(adapter, position + 1)[position]

    def expected_tokens(self, adapter: str, proposed: int) -> float:
        """E(k) = 1 + a_1 + a_1 a_2 + ... + a_1 .. a_k; 1 with nothing proposed."""
        return self.expected_by_length(adapter, proposed)[proposed]

    def expected_by_length(self, adapter: str, most: int) -> list[float]:
        """E(0) .. E(most)."""
        expected, survival = [1.0], 1.0
        for estimate in self._of(adapter, most)[:most]:
            survival *= estimate.mean
            expected.append(expected[-1] + survival)
        return expected

    def _of(self, adapter: str, length: int) -> list[PositionEstimate]:
        positions = self._positions.setdefault(adapter, [])
        self._positions.move_to_end(adapter)
        while len(self._positions) > self._max_adapters:
            self._positions.popitem(last=False)
        while len(positions) < length:
            positions.append(PositionEstimate())
        return positions
