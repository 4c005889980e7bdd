"""A semantic cache: answers are stored with the embeddings of questions, and found by the embeddings of paraphrases.

The embeddings are synthetic: a question is a random direction in 384 dimensions, and a paraphrase adds noise to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN

Vector = NDArray[np.float64]


def cached(memory: SQHN, embedding: Vector, answer: Callable[[], str]) -> tuple[str, bool]:
    """The answer to a question, and whether it came from the cache."""
    if memory.recognize(embedding).old:
        return memory.recall(embedding).value, True
    text = answer()
    memory.learn(embedding, value=text)
    return text, False


def main() -> tuple[float, int]:
    """Print and return the share of paraphrases answered from the cache, and the number of wrong answers."""
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
    false_hits = np.mean(memory.recognize(questions[200:]).old)
    print(f"{hits / 500:.1%} of paraphrases were answered from the cache; {wrong} answers were wrong")
    print(f"{false_hits:.1%} of 100 new questions were taken for old ones")
    return hits / 500, wrong


if __name__ == "__main__":
    main()
