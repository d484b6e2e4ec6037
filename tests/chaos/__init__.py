"""Faults of every kind against real pipelines, by scenarios and seeds: `python -m chaos`."""
