"""Memories in several places."""
