"""Banks on shards: for memories larger than one machine."""
