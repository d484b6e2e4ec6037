"""What is told of a running pipeline."""
