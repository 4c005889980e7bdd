"""Where a memory can live."""

from __future__ import annotations

from sqhn.banks.interface import Device

__all__ = ["device_of"]


def device_of(name: str) -> Device:
    """The device that a word stands for: "cpu", "cuda", or "cuda:1" and so on."""
    if name == "cpu":
        from sqhn.banks.cpu.device import Cpu

        return Cpu()
    if isinstance(name, str) and (name == "cuda" or name.startswith("cuda:")):
        from sqhn.banks.cuda.device import cuda

        return cuda(name)
    raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:0' and so on; got {name!r}")
