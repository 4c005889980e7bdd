"""The paper: its experiments, its baselines and the report."""
