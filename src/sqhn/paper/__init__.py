"""Reproduction of the paper: its experiments, the models it compares with, and a report."""
