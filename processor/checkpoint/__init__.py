"""What a checkpoint is, how its state is laid out, and how it may change."""
