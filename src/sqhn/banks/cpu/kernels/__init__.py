"""Compiled functions of arrays and numbers, typed by their compiler.

Arrays of a whole level have nodes first, then neurons or samples; a kernel for a range takes `lo, hi` first. Arrays
that belong together come as one plain tuple, which the kernel gives its names (calls with named tuples are slow). No
value, not even NaN, may lead to an index out of range.
"""
