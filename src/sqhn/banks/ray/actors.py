"""Hosts shards on Ray, as actors that it places on machines and restarts."""

from __future__ import annotations

import errno
import gc
import math
import os
import time
from typing import Any

from sqhn.banks.cpu.threads import set_num_threads
from sqhn.banks.ray.shards import LostError, Shard

BYPASS = "bypass"
"""The concurrency group of calls that do not wait for other calls."""
RETRY_SECONDS = 0.05
"""The time between two attempts to reach an actor, or to find free GPUs."""
GPU_SECONDS = 20.0
"""How long to wait for GPUs of memories that were deleted."""
GPU_UNITS = 10_000
"""The smallest part of a GPU that Ray can give, as one of so many."""


class Actor(Shard):
    """A shard in its own process, with a limited number of threads."""

    def __init__(self, threads: int) -> None:
        set_num_threads(threads)
        super().__init__()

    def process(self) -> tuple[int, float]:
        """The id of this process, and its processor time."""
        return os.getpid(), time.process_time()


class Actors:
    """Starts actors, spread over the machines of a cluster, and carries calls to them.

    device: of each actor's banks, "cpu" or "cuda".
    """

    def __init__(self, device: str, count: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError('device="ray" needs Ray: pip install "sqhn[ray]"') from error
        self.ray: Any = ray
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False)
        machines = [node["Resources"].get("CPU", 1) for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        self.threads = max(1, int(sum(machines) // count))
        gpus = {"num_gpus": self._share_of_a_gpu(count)} if device == "cuda" else {}
        variables = {"OMP_NUM_THREADS": str(self.threads), "OPENBLAS_NUM_THREADS": str(self.threads)}
        remote: Any = ray.remote(concurrency_groups={BYPASS: 1})  # type: ignore[call-overload]
        self.actor = remote(Actor).options(
            num_cpus=0, max_restarts=-1, scheduling_strategy="SPREAD", runtime_env={"env_vars": variables}, **gpus
        )

    def _share_of_a_gpu(self, count: int) -> float:
        """The part of a GPU that each actor gets: a whole one, if there are as many GPUs as actors."""
        gpus = int(self.ray.cluster_resources().get("GPU", 0))
        if not gpus:
            raise RuntimeError("device='ray:cuda' cannot be used: the cluster of Ray has no GPU; use device='ray'")
        share = math.floor(GPU_UNITS / math.ceil(count / gpus)) / GPU_UNITS
        gc.collect()  # deleted memories may still hold GPUs
        end = time.monotonic() + GPU_SECONDS
        while (free := self.ray.available_resources().get("GPU", 0.0)) < count * share - 0.5 / GPU_UNITS:
            if time.monotonic() > end:
                raise RuntimeError(
                    f"device='ray:cuda' cannot be used: shards={count} need {count * share:g} GPUs, but of {gpus} only "
                    f"{free:g} are free; another memory may have them"
                )
            time.sleep(RETRY_SECONDS)
        return share

    def start(self) -> Any:
        """A new, empty shard."""
        return self.actor.remote(self.threads)

    def call(self, shard: Any, method: str, *args: Any, bypass: bool = False) -> Any:
        """Send a call of a method, without waiting; a shard runs calls in turn, except those that bypass others."""
        bound = getattr(shard, method)
        return (bound.options(concurrency_group=BYPASS) if bypass else bound).remote(*args)

    def result(self, call: Any) -> Any:
        """Wait for the result of a call; LostError if the shard is lost."""
        errors = self.ray.exceptions
        try:
            return self.ray.get(call)
        except (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError) as error:
            raise LostError(str(error)) from error

    def reconnect(self, shard: Any) -> Any:
        """Wait until the shard can be reached, or another one in its place; it may be empty."""
        while True:
            try:
                self.ray.get(shard.applied.remote())
                return shard
            except self.ray.exceptions.ActorUnavailableError:
                time.sleep(RETRY_SECONDS)
            except self.ray.exceptions.ActorDiedError:
                return self.start()

    def done(self, call: Any) -> bool:
        """Whether a call has its result."""
        return bool(self.ray.wait([call], timeout=0)[0])

    def share(self, value: Any) -> Any:
        """Put a value where all shards can read it, as long as the returned reference exists."""
        full = self.ray.exceptions.ObjectStoreFullError, self.ray.exceptions.OutOfDiskError
        try:
            return self.ray.put(value)
        except full as error:
            raise OSError(errno.ENOSPC, f"Ray has no room for values shared by all shards: {error}") from error
