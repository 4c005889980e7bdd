"""A cache that is asked in other words: answers are kept with embeddings, and found again by similar ones.

The embeddings are made up here: a question is a direction in 384 dimensions, and a paraphrase points almost there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN

Vector = NDArray[np.float64]


def cached(memory: SQHN, embedding: Vector, answer: Callable[[], str]) -> tuple[str, bool]:
    """The answer to a question, and whether it was there already."""
    if memory.recognize(embedding).old:
        return memory.recall(embedding).value, True
    text = answer()
    memory.learn(embedding, value=text)
    return text, False


def main() -> tuple[float, int]:
    """Print and return the share of paraphrases that are answered from the cache, and how many of those wrongly."""
    rng = np.random.default_rng(0)
    questions = rng.normal(size=(300, 384))
    questions /= np.linalg.norm(questions, axis=1, keepdims=True)

    def paraphrased(x: Vector) -> Vector:
        return x + rng.normal(0, 0.6 / np.sqrt(384), x.shape)

    memory = SQHN((384,), capacity=1000, similarity="cosine")
    for n, question in enumerate(questions[:200]):
        memory.learn(question, value=f"answer {n}")
    memory.calibrate(old=paraphrased(questions[:200]), error=0.02)
    hits = wrong = 0
    for n in rng.integers(0, 200, 500):
        expected = f"answer {n}"
        text, hit = cached(memory, paraphrased(questions[n]), partial(str, expected))
        hits += hit
        wrong += text != expected
    asked_before = np.mean(memory.recognize(questions[200:]).old)
    print(f"{hits / 500:.1%} of paraphrases came from the cache, {wrong} of them with the answer to something else")
    print(f"{asked_before:.1%} of the other 100 questions are taken for old ones")
    return hits / 500, wrong


if __name__ == "__main__":
    main()
