"""Memories on shards."""
