"""The columns of the levels above the first: how often each child had each value when a neuron won.

A neuron whose samples all had the same values, as one that has learned a single sample, is a row of these values: a
byte for each child, or as many as the number of values needs. All other neurons have integer counts in lists: an entry
(slot, value, count) of a child stands in two linked lists, one over the neurons that know this value of the child
(walked upward, from the children's values to the neurons that agree) and one over the values of the child that the
neuron knows, in their order (walked downward, from a neuron to what it expects). Memory is bounded by what was stored.

`children` (nodes, children) are rows of `k` and `v` (child nodes, batch), the children's values and strengths, and of
`heard`: whether any of their values was observed; an empty array if all children were heard.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks.cpu.compiled import compiled, kernel

SLOT, VALUE, COUNT, NEXT_BY_VALUE, NEXT_BY_NEURON = 0, 1, 2, 3, 4
NONE = -1
ROW, FREE = -1, -2
"""Instead of a slot of the lists: the neuron is a row; there is no neuron."""
USED, FREED, SLOTS, VACANT, ROWS = 0, 1, 2, 3, 4
"""Of a node: the number of entries that were used, the first of the freed ones, the number of slots that were used, the
first of the vacant ones, and the number of neurons that are rows."""


class Columns(NamedTuple):
    """The neurons of all nodes.

    rows: the bytes of values, (bytes of a value, nodes, children, room), the lowest first. slot (nodes, room): the slot
    of each neuron in the lists, ROW or FREE. heads: (nodes, 5) as above. pool: the entries, (nodes, entries, 5) with
    the fields above. by_value (nodes, children, values) and by_neuron (nodes, slots, children): heads of the two lists.
    owner (nodes, slots): the neuron of a slot. S (nodes, slots): sums of squared counts.
    """

    rows: Any
    slot: Any
    heads: Any
    pool: Any
    by_value: Any
    by_neuron: Any
    owner: Any
    S: Any


# -- rows and lists --------------------------------------------------------------------------------------------------


@compiled
def value_of(rows, n, q, j):
    """The value of child q in the row of neuron j."""
    value = np.int64(rows[0, n, q, j])
    for p in range(1, rows.shape[0]):
        value |= np.int64(rows[p, n, q, j]) << (8 * p)
    return value


@compiled
def set_row(n, j, children, k, t, columns):
    """Let neuron j, which is none yet, be a row of the children's values of sample t."""
    for q in range(children.shape[0]):
        value = np.int64(k[children[q], t])
        for p in range(columns.rows.shape[0]):
            columns.rows[p, n, q, j] = np.uint8((value >> (8 * p)) & 255)
    columns.slot[n, j] = ROW
    columns.heads[n, ROWS] += 1


@compiled
def is_row_of(n, j, children, k, t, columns):
    """Whether neuron j is a row of the children's values of sample t."""
    many = 0
    if columns.slot[n, j] == ROW:
        for q in range(children.shape[0]):
            many += value_of(columns.rows, n, q, j) == k[children[q], t]
    return many == children.shape[0]


@compiled
def find(pool, head, value):
    """The entry of a neuron's list that holds a value, or NONE."""
    e = head
    while e != NONE and pool[e, VALUE] < value:
        e = pool[e, NEXT_BY_NEURON]
    return e if e != NONE and pool[e, VALUE] == value else NONE


@compiled
def new_slot(n, j, columns):
    """A slot for neuron j."""
    heads = columns.heads[n]
    s = heads[VACANT]
    if s != NONE:
        heads[VACANT] = columns.by_neuron[n, s, 0]
    else:
        s = heads[SLOTS]
        heads[SLOTS] += 1
    columns.by_neuron[n, s] = NONE
    columns.slot[n, j], columns.owner[n, s], columns.S[n, s] = s, j, 0
    return s


@compiled
def add(n, s, q, value, more, columns):
    """Count a value of child q for the neuron in a slot."""
    _, _, heads, pool, by_value, by_neuron, _, S = columns
    last, e = NONE, by_neuron[n, s, q]
    while e != NONE and pool[n, e, VALUE] < value:
        last, e = e, pool[n, e, NEXT_BY_NEURON]
    if e == NONE or pool[n, e, VALUE] != value:
        following = e
        if heads[n, FREED] != NONE:
            e = heads[n, FREED]
            heads[n, FREED] = pool[n, e, NEXT_BY_NEURON]
        else:
            e = heads[n, USED]
            heads[n, USED] += 1
        pool[n, e, SLOT], pool[n, e, VALUE], pool[n, e, COUNT] = s, value, 0
        pool[n, e, NEXT_BY_VALUE], by_value[n, q, value] = by_value[n, q, value], e
        pool[n, e, NEXT_BY_NEURON] = following
        if last == NONE:
            by_neuron[n, s, q] = e
        else:
            pool[n, last, NEXT_BY_NEURON] = e
    before = np.int64(pool[n, e, COUNT])
    pool[n, e, COUNT] += more
    S[n, s] += more * (2 * before + more)


@compiled
def there(heard, child, t):
    """Whether anything of a child was seen."""
    return heard.shape[0] == 0 or heard[child, t]


@compiled
def all_there(heard, children, t):
    """Whether something of every child was seen."""
    many = 0
    for q in range(children.shape[0]):
        many += there(heard, children[q], t)
    return many == children.shape[0]


@compiled
def count_sample(n, j, before, more, children, codes, t, columns):
    """Count sample t `more` times for neuron j, which has counted `before` samples."""
    k, _, seen = codes
    if before and is_row_of(n, j, children, k, t, columns) and all_there(seen, children, t):
        return
    if before == 0 and all_there(seen, children, t):
        set_row(n, j, children, k, t, columns)
        return
    s = np.int64(columns.slot[n, j])
    if s == FREE:
        s = new_slot(n, j, columns)
    elif s == ROW:
        s = new_slot(n, j, columns)
        columns.heads[n, ROWS] -= 1
        for q in range(children.shape[0]):
            add(n, s, q, value_of(columns.rows, n, q, j), before, columns)
    for q in range(children.shape[0]):
        if there(seen, children[q], t):
            add(n, s, q, np.int64(k[children[q], t]), more, columns)


@kernel
def erase(neurons, columns):
    """Forget everything that these neurons of the only node know."""
    columns = Columns(*columns)
    for i in range(neurons.shape[0]):
        clear(np.int64(0), neurons[i], columns)


@compiled
def clear(n, j, columns):
    """Forget everything that neuron j knows."""
    _, slot, heads, pool, by_value, by_neuron, _, _ = columns
    s = np.int64(slot[n, j])
    slot[n, j] = FREE
    if s == ROW:
        heads[n, ROWS] -= 1
    if s < 0:
        return
    for q in range(by_neuron.shape[2]):
        e = by_neuron[n, s, q]
        while e != NONE:
            value = pool[n, e, VALUE]
            before, at = NONE, by_value[n, q, value]
            while at != e:
                before, at = at, pool[n, at, NEXT_BY_VALUE]
            if before == NONE:
                by_value[n, q, value] = pool[n, e, NEXT_BY_VALUE]
            else:
                pool[n, before, NEXT_BY_VALUE] = pool[n, e, NEXT_BY_VALUE]
            after = pool[n, e, NEXT_BY_NEURON]
            pool[n, e, NEXT_BY_NEURON], heads[n, FREED] = heads[n, FREED], e
            e = after
    by_neuron[n, s, 0], heads[n, VACANT] = heads[n, VACANT], s
    columns.owner[n, s] = NONE


# -- persistence -----------------------------------------------------------------------------------------------------


@kernel
def dump(columns, grown, entries):
    """The entries of the lists as (node, neuron, child, value, count), sorted."""
    columns = Columns(*columns)
    many = 0
    for n in range(columns.slot.shape[0]):
        for j in range(grown[n]):
            s = np.int64(columns.slot[n, j])
            if s >= 0:
                for q in range(columns.by_neuron.shape[2]):
                    e = columns.by_neuron[n, s, q]
                    while e != NONE:
                        entries[many, 0], entries[many, 1], entries[many, 2] = n, j, q
                        entries[many, 3], entries[many, 4] = columns.pool[n, e, VALUE], columns.pool[n, e, COUNT]
                        many += 1
                        e = columns.pool[n, e, NEXT_BY_NEURON]
    return many


@kernel
def fill(entries, columns):
    """The inverse of `dump`, for neurons that are none yet; the last entries come first, for they go to the front."""
    columns = Columns(*columns)
    for i in range(entries.shape[0] - 1, -1, -1):
        n, j, q, more = (
            np.int64(entries[i, 0]),
            np.int64(entries[i, 1]),
            np.int64(entries[i, 2]),
            np.int64(entries[i, 4]),
        )
        s = np.int64(columns.slot[n, j])
        if s == FREE:
            s = new_slot(n, j, columns)
        add(n, s, q, np.int64(entries[i, 3]), more, columns)
