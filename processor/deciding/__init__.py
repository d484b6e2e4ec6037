"""Decisions that follow from the contents of brokers and checkpoints; pure."""
