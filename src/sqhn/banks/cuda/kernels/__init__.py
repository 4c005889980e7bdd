"""Functions that Triton compiles."""
