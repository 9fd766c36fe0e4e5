"""Ray Train for runs of one worker, which has nobody to exchange gradients with."""

from __future__ import annotations

from ray.train.backend import Backend
from ray.train.torch import TorchConfig


class LoneWorker(TorchConfig):
    """No process group: PyTorch would open a port for it, on every address of the machine, to whoever asks."""

    @property
    def backend_cls(self) -> type[Backend]:
        return Backend
