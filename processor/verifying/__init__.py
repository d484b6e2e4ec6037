"""Reading what a pipeline has written, and judging it."""
