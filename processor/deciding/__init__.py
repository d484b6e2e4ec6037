"""What is decided from what brokers and checkpoints say; pure."""
