"""The ranks of one target: rank 0 in this process, the others beside it in processes of their own, on one machine.

vLLM's own executors put every rank elsewhere, and logits are large: 9 rows of 128,000 ids are 4.6 MB. Here those of
rank 0 stay where tokens are drawn. A rank that fails ends all: a collective that lacks one would wait for ever, while a
replica that is gone is replaced, and its answers go on in another.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.serial_utils import run_method
from vllm.v1.worker.worker_base import WorkerWrapperBase

_GRACE = 20.0  # seconds; what one rank cannot load none can, and rank 0 is the one that says why


class LocalRanks(UniProcExecutor):  # type: ignore[misc]
    """Calls every method on all ranks; those of the others begin first."""

    def _init_executor(self) -> None:
        self._rendezvous: tuple[str, int, int] = super()._distributed_args()
        self._loaded = self._ending = False
        self._others: list[Connection] = []
        self._processes: list[Any] = []
        spawn = multiprocessing.get_context("spawn")  # threads run here, and perhaps CUDA
        for rank in range(1, self.parallel_config.world_size):
            ours, theirs = spawn.Pipe()
            arguments = self.vllm_config, rank, self._rendezvous[0], torch.get_num_threads(), theirs
            process = spawn.Process(target=_follow, args=arguments, name=f"rank {rank}", daemon=True)
            process.start()
            theirs.close()
            self._others.append(ours)
            self._processes.append(process)
        if self._processes:
            atexit.register(self._end)  # before multiprocessing ends them, which would look like a failure
            threading.Thread(target=self._watch, name="ranks", daemon=True).start()
        try:
            super()._init_executor()
        except BaseException:
            self._end()
            raise
        self._loaded = True

    def _distributed_args(self) -> tuple[str, int, int]:
        return self._rendezvous

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        single_value: bool = False,
    ) -> Any:
        """The results by rank, or with `single_value` that of rank 0. If rank 0 fails, the others end."""
        for other in self._others:
            other.send((method, args, kwargs or {}))
        try:
            own = super().collective_rpc(method, timeout, args, kwargs, non_block, single_value)
        except BaseException:
            self._end()
            raise
        results = [other.recv() for other in self._others]
        return own if single_value or non_block else [*own, *results]

    def shutdown(self) -> None:
        self._end()
        super().shutdown()

    def _end(self) -> None:
        """The others end by themselves when their pipes close, unless they wait in a collective."""
        self._ending = True
        for other in self._others:
            other.close()
        for process in self._processes:
            process.join(1.0 if self._loaded else 0.0)
            process.kill()

    def _watch(self) -> None:
        """End this process when another rank has ended, since it may be waiting for that one in a collective."""
        wait([process.sentinel for process in self._processes])
        if not self._loaded:
            time.sleep(_GRACE)
        if not self._ending:
            os.kill(os.getpid(), signal.SIGKILL)


def _follow(config: Any, rank: int, rendezvous: str, threads: int, orders: Connection) -> None:
    """The life of another rank: it loads its part, then runs what rank 0 says, until that is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for rank 0, which ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    worker = WorkerWrapperBase(rpc_rank=0, global_rank=rank)
    worker.init_worker(
        [
            {
                "vllm_config": config,
                "local_rank": rank,
                "rank": rank,
                "distributed_init_method": rendezvous,
                "is_driver_worker": False,
                "shared_worker_lock": multiprocessing.Lock(),
            }
        ]
    )
    worker.init_device()
    worker.load_model()
    current_platform.update_block_size_for_backend(config)
    while True:
        try:
            method, args, kwargs = orders.recv()
        except (EOFError, OSError):
            break
        orders.send(run_method(worker, method, args, kwargs))
    worker.shutdown()


def _end_with_parent() -> None:
    """Whatever the rank waits for: a collective with a rank that is gone cannot be interrupted."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    time.sleep(1.0)  # an orderly end has come by then
    os._exit(1)
