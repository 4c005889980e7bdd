"""The neurons of a memory as images: in a notebook, and as a contact sheet."""

from __future__ import annotations

import base64
import html as escaping
import io
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

    from sqhn.memory import SQHN
    from sqhn.model.model import Model

NOTEBOOK_IMAGES = 24
HEIGHT = 64  # of an image on the screen, in pixels
CAPTION = 12  # pixels below an image of a sheet
GAP = 4  # pixels between images


class Shown(NamedTuple):
    """A neuron as an image, how many samples it was learned from, and its most frequent label, or None."""

    neuron: int
    image: NDArray[np.uint8]
    samples: int
    label: Any


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
    for j, image, count, _ in memory.inspect(lambda model: _images(model, NOTEBOOK_IMAGES)):
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


def _images(model: Model, most: int) -> list[Shown]:
    """The first neurons that are not forgotten; none if samples are not images."""
    counts = model.tree.neurons("c")
    living = np.flatnonzero(counts)[:most].tolist()
    prototypes = model.tree.prototypes(max(living, default=0) + 1)[0]
    labels = [next((label for label, _ in model.labels.of(j)), None) for j in living]
    images = [pixels(prototypes[j]) for j in living]
    return [Shown(j, x, int(counts[j]), label) for j, x, label in zip(living, images, labels) if x is not None]


def sheet(memory: SQHN, most: int) -> tuple[Image, list[Shown]]:
    """The first neurons in rows, each above its index and count, and its label if there are any; and the neurons."""
    from PIL import Image, ImageDraw

    shown = memory.inspect(lambda model: _images(model, most))
    if not shown:
        reason = f"samples of shape {memory.input_shape} are not images" if len(memory) else "nothing is stored"
        raise ValueError(f"there is nothing to show: {reason}")
    height, width = shown[0].image.shape[:2]
    scale = max(1, -(-HEIGHT // max(height, width)))
    lines = 1 + any(one.label is not None for one in shown)
    wide, high = max(width * scale, HEIGHT) + GAP, height * scale + lines * CAPTION + GAP
    columns = math.ceil(math.sqrt(len(shown) * high / wide))
    whole = Image.new("RGB", (columns * wide + GAP, -(-len(shown) // columns) * high + GAP), "white")
    draw = ImageDraw.Draw(whole)
    for i, (j, image, count, label) in enumerate(shown):
        left, top = GAP + i % columns * wide, GAP + i // columns * high
        large = Image.fromarray(image).resize((width * scale, height * scale), Image.Resampling.NEAREST)
        whole.paste(large, (left, top))
        draw.text((left, top + height * scale), f"{j} ({count})", fill="black")
        if label is not None:
            draw.text((left, top + height * scale + CAPTION), _fitted(draw, f"{label}", wide - GAP), fill="black")
    return whole, shown


def _fitted(draw: ImageDraw, text: str, width: int) -> str:
    """The end of a text, in which names differ, that is at most so wide; the font has only the characters of ASCII."""
    text = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
    text = text[-width:]  # a letter has at least one pixel
    end = text
    while draw.textlength(end) > width:
        text = text[1:]
        end = f"..{text}"
    return end
