"""Decoding messages into packed rows, with the work that the planner pushed into decoding."""
