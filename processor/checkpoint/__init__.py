"""Checkpoints: their metadata, the layout of their state, and changes of plan and shards."""
