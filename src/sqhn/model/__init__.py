"""The model: one tree of banks, its sweeps and its rules of inference."""
