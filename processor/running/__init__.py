"""Run a plan from Python: in the background, or until it has ended."""
