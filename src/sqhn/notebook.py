"""A memory in a notebook: a line about it, and pictures of what it has stored."""

from __future__ import annotations

import base64
import html as escaping
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sqhn.network import SQHN

__all__ = ["html", "picture"]

MOST = 24  # pictures
HEIGHT = 64  # pixels on the screen


def html(memory: SQHN) -> str:
    """What `repr` says, and of samples that can be shown the first ones, each with its neuron and count."""
    text = f"<code>{escaping.escape(repr(memory))}</code>"
    figures = []
    for j, (x, count) in enumerate(zip(memory._read(memory._prototypes, MOST), memory.counts)):
        shown = picture(x)
        if shown is None:
            return text
        name = f"neuron {j}, learned from {count} sample{'' if count == 1 else 's'}"
        figures.append(
            f'<figure style="display:inline-block;margin:2px;text-align:center"><img alt="{name}" title="{name}" '
            f'style="height:{HEIGHT}px;image-rendering:pixelated" src="data:image/png;base64,{shown}">'
            f'<figcaption style="font-size:10px">{j} ({count})</figcaption></figure>'
        )
    more = f"<br>and {len(memory) - MOST:,} more" if len(memory) > MOST else ""
    return f"{text}<br>{''.join(figures)}{more}"


def picture(x: NDArray[np.float32]) -> str | None:
    """A sample as PNG in base64, from 0 (black) to 1: a picture, or a signal as a strip; None of what is neither."""
    from PIL import Image

    values: Any = x[None] if x.ndim == 1 else x
    if values.ndim != 2 and values.shape[2:] not in ((1,), (3,)):
        return None
    grey = values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values
    file = io.BytesIO()
    Image.fromarray(np.round(np.clip(grey, 0, 1) * 255).astype(np.uint8)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
