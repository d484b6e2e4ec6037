"""Read the output of a pipeline, and verify it."""
