"""Banks on a GPU: torch for products, Triton for loops over samples."""
