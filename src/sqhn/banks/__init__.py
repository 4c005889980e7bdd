"""The neurons: pattern banks (prototype vectors, level 1) and code banks (categorical counts, above it)."""
