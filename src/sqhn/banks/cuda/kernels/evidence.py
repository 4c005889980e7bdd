"""The evidence of blocks for neurons (`sqhn.evidence`) on a GPU, from sums over the values of blocks.

The sums are those of `banks.cpu.kernels.evidence`. In all kernels: n, x (blocks, batch, channels) and xx (blocks,
batch) of the questions; m (blocks, samples, channels, width), mm (blocks, samples, width) and xm (blocks, batch, width)
of the neurons. `samples` is the batch if values are missing, and 1 otherwise. All of it is float64, except the
likelihoods relative to the largest one, which are float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.cuda.kernels.common import NONE
from sqhn.evidence import FLOOR, LENGTH, ODDS, STRUCTURE

_FLOOR, _LENGTH = tl.constexpr(FLOOR), tl.constexpr(LENGTH)
_STRUCTURE, _ODDS = tl.constexpr(STRUCTURE), tl.constexpr(ODDS)


@triton.jit
def likelihood(products, energies, energy, d):
    """The log likelihoods of neurons, from their products with x and both energies."""
    q = tl.sqrt(energies) * tl.sqrt(energy) + _LENGTH
    p = tl.maximum(products, 0.0)
    return 0.5 * d * tl.log(q * q / (tl.maximum(q * q - p * p, 0.0) + _FLOOR * q * q))


@triton.jit
def share(likely, top):
    """Likelihoods relative to exp(top)."""
    return tl.exp((likely - top).to(tl.float32)).to(tl.float64)


@triton.jit
def looks(
    question, stored, living, many, scratch, A, batch, width, channels, weight, masked: tl.constexpr,
    alike: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """The evidence of both looks at a block, times a weight; one program for a question and a block.

    A, scratch (blocks, batch, width). living (blocks, width) and many (blocks,): which slots hold a neuron, and how
    many do; alike: they are the same for all blocks. A is minus infinity in other slots, but 0 in the first one of a
    node without neurons.
    """
    n, x, xx = question
    m, mm, xm = stored
    t, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = b * batch + t
    n, x, xm = n + row * channels, x + row * channels, xm + row * width
    A, scratch = A + row * width, scratch + row * width
    sample = row if masked else b
    m, mm = m + sample * channels * width, mm + sample * width
    if not alike:
        living, many = living + b * width, many + b
    energy, several = tl.load(xx + row), tl.load(many).to(tl.float64)
    d, free, left, price = energy * 0.0, energy * 0.0, energy, energy * 0.0
    for c in range(channels):
        pixels = tl.load(n + c)
        some, total = tl.maximum(pixels, 1.0), tl.load(x + c)
        d += pixels
        free += tl.maximum(pixels - 1.0, 0.0)
        left -= total * total / some
        price += 0.5 * tl.log(some)
    left = tl.maximum(left, 0.0)
    flat = -0.5 * d * tl.log(tl.where(energy > 0.0, left / tl.maximum(energy, 1e-300), 1.0) + _FLOOR) - price
    most, more = tl.zeros((J,), tl.float64), tl.zeros((J,), tl.float64)
    for lowest in range(0, width, J):
        j = lowest + tl.arange(0, J)
        inside = j < width
        energies, along = tl.load(mm + j, mask=inside, other=0.0), tl.load(xm + j, mask=inside, other=0.0)
        lefts, across = energies, along
        for c in range(channels):
            some = tl.maximum(tl.load(n + c), 1.0)
            means = tl.load(m + c * width + j, mask=inside, other=0.0) / some
            lefts -= some * means * means
            across -= tl.load(x + c) * means
        across = tl.where(lefts > _STRUCTURE * energies, across, 0.0)
        across = tl.where(left > _STRUCTURE * energy, across, 0.0)
        there = tl.load(living + j, mask=inside, other=0) != 0
        first = tl.where(there, likelihood(along, energies, energy, d), float("-inf"))
        second = tl.where(there, likelihood(across, tl.maximum(lefts, 0.0), left, free), float("-inf"))
        most, more = tl.maximum(most, first), tl.maximum(more, second)
        tl.store(A + j, first, mask=inside)
        tl.store(scratch + j, second, mask=inside)
    tl.debug_barrier()  # lanes read values that other lanes have stored
    top, other = tl.maximum(tl.max(most), flat), tl.max(more)
    most, more = tl.zeros((J,), tl.float64), tl.zeros((J,), tl.float64)
    for lowest in range(0, width, J):
        j = lowest + tl.arange(0, J)
        most += share(tl.load(A + j, mask=j < width, other=float("-inf")), top)
        more += share(tl.load(scratch + j, mask=j < width, other=float("-inf")), other)
    odds = several / _ODDS
    rivals, others = several * (tl.exp(flat - top) + tl.exp(-top)), several * tl.exp(-other)
    one = tl.where(d > 0.0, odds, 0.0) / tl.maximum(tl.sum(most) + rivals, 1e-300)
    two = tl.where(free > 0.0, odds, 0.0) / tl.maximum(tl.sum(more) + others, 1e-300)
    for lowest in range(0, width, J):
        j = lowest + tl.arange(0, J)
        first = tl.load(A + j, mask=j < width, other=0.0)
        second = tl.load(scratch + j, mask=j < width, other=0.0)
        found = weight * tl.log((1.0 + one * share(first, top)) * (1.0 + two * share(second, other)))
        none = tl.where(j == 0, tl.where(several > 0.0, float("-inf"), 0.0), float("-inf"))
        tl.store(A + j, tl.where(first > float("-inf"), found, none), mask=j < width)


@triton.jit
def gather(values, children, likeliest, out, rows, family, below, width, J: tl.constexpr):
    """Sums over children of the value that each neuron most likely gives to them: out (nodes, rows, width).

    values (child nodes, rows, below); likeliest (nodes, family, width): a value of the child, or NONE.
    """
    row, node = tl.program_id(0), tl.program_id(1).to(tl.int64)
    j = tl.program_id(2) * J + tl.arange(0, J)
    inside = j < width
    total = tl.zeros((J,), tl.float64)
    for q in range(family):
        child = tl.load(children + node * family + q)
        k = tl.load(likeliest + (node * family + q) * width + j, mask=inside, other=NONE)
        total += tl.load(values + (child * rows + row) * below + k, mask=k != NONE, other=0.0)
    tl.store(out + (node * rows + row) * width + j, total, mask=inside)


@triton.jit
def heard(A, children, begin, end, value, probability, out, batch, family, below, width, J: tl.constexpr):
    """Add the evidence of children to out (nodes, batch, width): the log of a mean of exp(A) by the probabilities.

    A (child nodes, batch, below). The entries of a neuron and a child are from begin up to end (nodes, family, width).
    """
    t, node = tl.program_id(0), tl.program_id(1).to(tl.int64)
    j = tl.program_id(2) * J + tl.arange(0, J)
    inside = j < width
    at = out + (node * batch + t) * width + j
    total = tl.load(at, mask=inside, other=0.0)
    for q in range(family):
        row = A + (tl.load(children + node * family + q) * batch + t) * below
        cell = (node * family + q) * width + j
        low = tl.load(begin + cell, mask=inside, other=0)
        high = tl.load(end + cell, mask=inside, other=0)
        most = tl.max(high - low)
        top = tl.full((J,), float("-inf"), tl.float64)
        for i in range(most):
            there = low + i < high
            k = tl.load(value + low + i, mask=there, other=0)
            top = tl.maximum(top, tl.load(row + k, mask=there, other=float("-inf")))
        found = tl.zeros((J,), tl.float64)
        if most > 1:
            for i in range(most):
                there = low + i < high
                k = tl.load(value + low + i, mask=there, other=0)
                p = tl.load(probability + low + i, mask=there, other=0.0)
                found += p * tl.exp(tl.load(row + k, mask=there, other=0.0) - tl.where(there, top, 0.0))
            found = tl.log(tl.where(low < high, found, 1.0))
        total += tl.where(low < high, found + top, 0.0)
    tl.store(at, total, mask=inside)
