"""Banks on a GPU: torch for the products, Triton for what must be done one after another."""
