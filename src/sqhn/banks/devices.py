"""Finds a device by its name."""

from __future__ import annotations

from sqhn.banks.compilation import cpu
from sqhn.banks.interface import Device
from sqhn.banks.plain.device import Plain
from sqhn.checks import check_count


def device_of(name: str, shards: int | None = None) -> Device:
    """The device with this name: "cpu"; "plain", which compiles nothing; "cuda", "cuda:1" and so on; or, with a number
    of shards, "ray" and "ray:cuda".

    "ray:cuda" keeps the shards on GPUs.
    """
    if isinstance(name, str) and name.partition(":")[0] == "ray":
        if shards is None:
            raise ValueError(f"device={name!r} needs shards=N, the number of places that the memory is in")
        word = name.partition(":")[2] or "cpu"
        if word not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'ray' or 'ray:cuda'; got {name!r}")
        from sqhn.banks.ray.device import Sharded

        return Sharded(name, word, check_count("shards", shards))
    if shards is not None:
        raise ValueError(f"shards={shards!r} is for device='ray'; got device={name!r}")
    if name == "cpu":
        return cpu()
    if name == "plain":
        return Plain()
    if isinstance(name, str) and (name == "cuda" or name.startswith("cuda:")):
        from sqhn.banks.cuda.device import cuda

        return cuda(name)
    raise ValueError(f"device must be 'cpu', 'plain', 'cuda', 'cuda:0' and so on, or 'ray'; got {name!r}")
