"""Memories that are larger than one machine: banks whose neurons are in several places."""
