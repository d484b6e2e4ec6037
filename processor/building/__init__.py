"""Pipelines written in Python: topics become collections, and collections become topics.

Nothing here computes.  A `Pipeline` collects inputs, operators and outputs, and makes the
same immutable `Plan` that a pipeline file makes.
"""
