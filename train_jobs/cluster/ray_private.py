"""What is used of Ray that its documentation does not promise: an upgrade of Ray is reviewed here."""

from __future__ import annotations

from ray._private import state, worker
from ray.train.backend import Backend
from ray.train.torch import TorchConfig


class LoneWorker(TorchConfig):
    """Ray Train for one worker, without a process group.

    PyTorch would open a port for the group, on every address of the machine, to whoever asks.
    """

    @property
    def backend_cls(self) -> type[Backend]:
        return Backend


def silence_raylets() -> None:
    """Keep the messages of raylets out of this process's output. There is no other switch."""
    worker.print_to_stdstream = lambda *_, **__: None


def free_resources() -> list[dict[str, float]]:
    """What each node has left. The public function tells only the sum, of which a worker may fit on no node."""
    return list(state.available_resources_per_node().values())
