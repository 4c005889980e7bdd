"""Shards as actors of Ray: placed, reached and restarted by it."""

from __future__ import annotations

import errno
import gc
import math
import os
import time
from typing import Any

from sqhn.banks.cpu.threads import set_num_threads
from sqhn.banks.ray.shards import LostError, Shard

__all__ = ["Actors"]

ASIDE = "aside"
SOON = 0.05  # seconds to wait for an actor that Ray restarts
PATIENCE = 20.0  # seconds to wait for GPUs that are about to be free
UNIT = 10_000  # parts that Ray can divide a GPU into


class Actor(Shard):
    """A shard in a process of its own, which shares its machine with others."""

    def __init__(self, threads: int) -> None:
        set_num_threads(threads)
        super().__init__()

    def process(self) -> int:
        """Its number."""
        return os.getpid()

    def seconds(self) -> float:
        """For how long it has kept a core busy."""
        return time.process_time()


class Actors:
    """Starts and reaches so many actors, spread over the machines of a cluster."""

    def __init__(self, word: str, many: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError('device="ray" needs Ray: pip install "sqhn[ray]"') from error
        self.ray: Any = ray
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False)
        machines = [node["Resources"].get("CPU", 1) for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        self.threads = max(1, int(sum(machines) // many))
        gpus = {"num_gpus": self._share_of_a_gpu(many)} if word == "cuda" else {}
        variables = {"OMP_NUM_THREADS": str(self.threads), "OPENBLAS_NUM_THREADS": str(self.threads)}
        remote: Any = ray.remote(concurrency_groups={ASIDE: 1})  # type: ignore[call-overload]
        self.actor = remote(Actor).options(
            num_cpus=0, max_restarts=-1, scheduling_strategy="SPREAD", runtime_env={"env_vars": variables}, **gpus
        )

    def _share_of_a_gpu(self, many: int) -> float:
        """One each; or, if there are fewer, as many on each as there must be."""
        gpus = int(self.ray.cluster_resources().get("GPU", 0))
        if not gpus:
            raise RuntimeError("device='ray:cuda' cannot be used: the cluster of Ray has no GPU; use device='ray'")
        share = math.floor(UNIT / math.ceil(many / gpus)) / UNIT
        gc.collect()  # memories that are no longer needed, which have some
        end = time.monotonic() + PATIENCE
        while (free := self.ray.available_resources().get("GPU", 0.0)) < many * share - 0.5 / UNIT:
            if time.monotonic() > end:
                raise RuntimeError(
                    f"device='ray:cuda' cannot be used: shards={many} need {many * share:g} GPUs, but of {gpus} only "
                    f"{free:g} are free; another memory may have them"
                )
            time.sleep(SOON)
        return share

    def start(self) -> Any:
        return self.actor.remote(self.threads)

    def call(self, shard: Any, method: str, *args: Any, aside: bool = False) -> Any:
        begin = getattr(shard, method)
        return (begin.options(concurrency_group=ASIDE) if aside else begin).remote(*args)

    def result(self, call: Any) -> Any:
        lost = self.ray.exceptions
        try:
            return self.ray.get(call)
        except (lost.RayActorError, lost.ObjectLostError, lost.WorkerCrashedError) as error:
            raise LostError(str(error)) from error

    def again(self, shard: Any) -> Any:
        while True:
            try:
                self.ray.get(shard.written.remote())
                return shard
            except self.ray.exceptions.ActorUnavailableError:
                time.sleep(SOON)
            except self.ray.exceptions.ActorDiedError:
                return self.start()

    def arrived(self, call: Any) -> bool:
        return bool(self.ray.wait([call], timeout=0)[0])

    def share(self, value: Any) -> Any:
        full = self.ray.exceptions.ObjectStoreFullError, self.ray.exceptions.OutOfDiskError
        try:
            return self.ray.put(value)
        except full as error:
            raise OSError(errno.ENOSPC, f"no room for what goes to the shards: {error}") from error
