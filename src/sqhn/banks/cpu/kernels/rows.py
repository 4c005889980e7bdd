"""Prototypes in rows of float32 and of bytes (`sqhn.banks.rows`)."""

from __future__ import annotations

import numpy as np

from sqhn.banks import rows
from sqhn.banks.cpu.compiled import compiled, inlined, kernel
from sqhn.banks.rows import NONE

COARSE, FINE = np.float32(257 / 65536), np.float32(1 / 255 - 257 / 65536)
"""1 / 255 as a sum: the product of a byte and the first is exact, so only the sum of both products is rounded."""

claim, release = compiled(rows.claim), compiled(rows.release)


@compiled
def decode(raw, out):
    """Bytes / 255, as division in float32 rounds it."""
    for i in range(raw.shape[0]):
        value = np.float32(raw[i])
        out[i] = value * COARSE + value * FINE


@compiled
def copy(m, out):
    """Copy all values."""
    for i in range(m.shape[0]):
        out[i] = m[i]


@inlined
def prototype(own, j):
    """The prototype of neuron j in float32: its row, or the scratch `decoded`."""
    if own.raw.shape[1] == 0:
        return own.m[j]
    if own.place[j] != NONE:
        return own.m[own.place[j]]
    decode(own.raw[j], own.decoded)
    return own.decoded


@inlined
def row(own, j):
    """The row of neuron j, to be written; a neuron that is bytes gets one, with its values."""
    if own.raw.shape[1] == 0:
        return own.m[j]
    if own.place[j] == NONE:
        decode(own.raw[j], own.m[claim(own, j)])
    return own.m[own.place[j]]


@compiled
def become_bytes(own, j, sample):
    """Let neuron j be a sample of bytes."""
    if own.place[j] != NONE:
        at, last = release(own, j)
        copy(own.m[last], own.m[at])
    copy(sample, own.raw[j])


@kernel
def decode_rows(lo, hi, first, m, raw, place, out):
    """The neurons from `first` on of a node that keeps bytes, in float32, into out (neurons, size)."""
    for i in range(lo, hi):
        at = place[first + i]
        if at == NONE:
            decode(raw[first + i], out[i])
        else:
            copy(m[at], out[i])
