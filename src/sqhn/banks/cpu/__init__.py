"""Banks in main memory, whose loops Numba compiles."""
