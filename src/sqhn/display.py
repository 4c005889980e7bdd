"""What a memory has stored, as pictures: in a notebook, and as a sheet."""

from __future__ import annotations

import base64
import html as escaping
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

    from sqhn.memory import SQHN
    from sqhn.model.model import Model

__all__ = ["html", "pixels", "sheet"]

MOST = 24  # pictures in a notebook
HEIGHT = 64  # pixels on the screen
CAPTION = 12  # pixels below a picture of a sheet
GAP = 4  # and between pictures


def pixels(x: NDArray[np.float32]) -> NDArray[np.uint8] | None:
    """A sample from 0 (black) to 1 as pixels: a picture, or a signal as a strip; None of what is neither."""
    values: Any = x[None] if x.ndim == 1 else x
    if values.ndim != 2 and values.shape[2:] not in ((1,), (3,)):
        return None
    grey = values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values
    shown: NDArray[np.uint8] = np.round(np.clip(grey, 0, 1) * 255).astype(np.uint8)
    return shown


def html(memory: SQHN) -> str:
    """What `repr` says, and of samples that can be shown the first ones, each with its neuron and count."""
    from PIL import Image

    text = f"<code>{escaping.escape(repr(memory))}</code>"
    figures = []
    for j, x, count in _stored(memory, MOST):
        shown = pixels(x)
        if shown is None:
            return text
        file, small = io.BytesIO(), Image.fromarray(shown)
        small.thumbnail((4 * HEIGHT, 2 * HEIGHT))
        small.save(file, "PNG")
        name = f"neuron {j}, learned from {count} sample{'' if count == 1 else 's'}"
        figures.append(
            f'<figure style="display:inline-block;margin:2px;text-align:center"><img alt="{name}" title="{name}" '
            f'style="height:{HEIGHT}px;max-width:{4 * HEIGHT}px;image-rendering:pixelated" '
            f'src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'
            f'<figcaption style="font-size:10px">{j} ({count})</figcaption></figure>'
        )
    more = f"<br>and {len(memory) - MOST:,} more" if len(memory) > MOST else ""
    return f"{text}<br>{''.join(figures)}{more}"


def _stored(memory: SQHN, most: int) -> list[tuple[int, NDArray[np.float32], int]]:
    """The number, the picture and the count of the first neurons that were not forgotten."""

    def look(model: Model) -> list[tuple[int, NDArray[np.float32], int]]:
        counts = model.tree.neurons("c")
        living = np.flatnonzero(counts)[:most]
        prototypes = model.tree.prototypes(int(living.max(initial=0)) + 1)[0]
        return [(int(j), prototypes[j], int(counts[j])) for j in living]

    return memory.inspect(look)


def sheet(memory: SQHN, most: int) -> tuple[Image, int]:
    """The first neurons in rows, each above its number and its count; and how many they are."""
    from PIL import Image, ImageDraw

    shown = [(j, pixels(x), count) for j, x, count in _stored(memory, most)]
    pictures = [(j, one, count) for j, one, count in shown if one is not None]
    if not pictures:
        what = f"samples of shape {memory.input_shape} are no pictures" if shown else "nothing is stored"
        raise ValueError(f"there is nothing to show: {what}")
    height, width = pictures[0][1].shape[:2]
    scale = max(1, -(-HEIGHT // max(height, width)))
    wide, high = max(width * scale, HEIGHT) + GAP, height * scale + CAPTION + GAP
    columns = math.ceil(math.sqrt(len(pictures) * high / wide))
    whole = Image.new("RGB", (columns * wide + GAP, -(-len(pictures) // columns) * high + GAP), "white")
    draw = ImageDraw.Draw(whole)
    for i, (j, picture, count) in enumerate(pictures):
        left, top = GAP + i % columns * wide, GAP + i // columns * high
        large = Image.fromarray(picture).resize((width * scale, height * scale), Image.Resampling.NEAREST)
        whole.paste(large, (left, top))
        draw.text((left, top + height * scale), f"{j} ({count})", fill="black")
    return whole, len(pictures)
