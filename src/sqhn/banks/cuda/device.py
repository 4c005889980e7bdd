"""Opening a GPU. torch and Triton are imported only here and below."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqhn.banks.cuda.gpu import Cuda


INSTEAD = "or use device='cpu', which needs neither"


def cuda(device: str) -> Cuda:
    """A GPU, or an error that says which part is missing."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"device={device!r} needs torch: pip install 'sqhn[torch]', {INSTEAD}") from error
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
        place = torch.device("cuda", torch.cuda.current_device() if place.index is None else place.index)
    except (AssertionError, RuntimeError) as error:  # no GPU, an old driver, torch without CUDA, no such GPU
        raise RuntimeError(
            f"device={device!r} cannot be used: {str(error).splitlines()[0]} "
            f"(torch {torch.__version__}, built for CUDA {torch.version.cuda}, {torch.cuda.device_count()} GPUs); "
            "install a torch that fits the driver, or use device='cpu', which needs none of it"
        ) from error
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise ImportError(f"device={device!r} needs Triton: pip install triton, {INSTEAD}") from error
    from sqhn.banks.cuda.gpu import Cuda

    return Cuda(place)
