"""The neurons of a memory as images: in a notebook, and as a contact sheet."""

from __future__ import annotations

import base64
import html as escaping
import io
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

    from sqhn.memory import SQHN
    from sqhn.model.model import Model

NOTEBOOK_IMAGES = 24
HEIGHT = 64  # of an image on the screen, in pixels
CAPTION = 12  # pixels below an image of a sheet
GAP = 4  # pixels between images


def pixels(x: NDArray[np.float32]) -> NDArray[np.uint8] | None:
    """An image, or a signal as a strip, from 0 (black) to 1, as pixels; None for samples of other shapes."""
    image = np.atleast_2d(x)
    if image.shape[2:] == (1,):
        image = image[..., 0]
    if image.shape[2:] not in ((), (3,)):
        return None
    return np.asarray(np.round(np.clip(image, 0, 1) * 255), np.uint8)


def html(memory: SQHN) -> str:
    """The repr, and images of the first neurons with their counts, if samples are images or signals."""
    from PIL import Image

    text = f"<code>{escaping.escape(repr(memory))}</code>"
    figures = []
    for j, image, count in memory.inspect(lambda model: _images(model, NOTEBOOK_IMAGES)):
        file, small = io.BytesIO(), Image.fromarray(image)
        small.thumbnail((4 * HEIGHT, 2 * HEIGHT))
        small.save(file, "PNG")
        name = f"neuron {j}, learned from {count} sample{'' if count == 1 else 's'}"
        figures.append(
            f'<figure style="display:inline-block;margin:2px;text-align:center"><img alt="{name}" title="{name}" '
            f'style="height:{HEIGHT}px;max-width:{4 * HEIGHT}px;image-rendering:pixelated" '
            f'src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'
            f'<figcaption style="font-size:10px">{j} ({count})</figcaption></figure>'
        )
    if not figures:
        return text
    more = f"<br>and {len(memory) - NOTEBOOK_IMAGES:,} more" if len(memory) > NOTEBOOK_IMAGES else ""
    return f"{text}<br>{''.join(figures)}{more}"


def _images(model: Model, most: int) -> list[tuple[int, NDArray[np.uint8], int]]:
    """The index, image and count of the first neurons that are not forgotten; none if samples are not images."""
    counts = model.tree.neurons("c")
    living = np.flatnonzero(counts)[:most]
    prototypes = model.tree.prototypes(int(living.max(initial=0)) + 1)[0]
    return [(int(j), image, int(counts[j])) for j in living if (image := pixels(prototypes[j])) is not None]


def sheet(memory: SQHN, most: int) -> tuple[Image, int]:
    """The first neurons in rows, each above its index and count; and how many there are."""
    from PIL import Image, ImageDraw

    images = memory.inspect(lambda model: _images(model, most))
    if not images:
        reason = f"samples of shape {memory.input_shape} are not images" if len(memory) else "nothing is stored"
        raise ValueError(f"there is nothing to show: {reason}")
    height, width = images[0][1].shape[:2]
    scale = max(1, -(-HEIGHT // max(height, width)))
    wide, high = max(width * scale, HEIGHT) + GAP, height * scale + CAPTION + GAP
    columns = math.ceil(math.sqrt(len(images) * high / wide))
    whole = Image.new("RGB", (columns * wide + GAP, -(-len(images) // columns) * high + GAP), "white")
    draw = ImageDraw.Draw(whole)
    for i, (j, image, count) in enumerate(images):
        left, top = GAP + i % columns * wide, GAP + i // columns * high
        large = Image.fromarray(image).resize((width * scale, height * scale), Image.Resampling.NEAREST)
        whole.paste(large, (left, top))
        draw.text((left, top + height * scale), f"{j} ({count})", fill="black")
    return whole, len(images)
