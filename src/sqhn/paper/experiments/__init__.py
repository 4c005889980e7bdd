"""The paper's experiments: one module per family, listed in `catalogue`, and run by `runner`."""
