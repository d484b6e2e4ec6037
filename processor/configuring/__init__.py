"""The pipeline file, and where and how a plan runs."""
