"""Operators made of others, and SQL queries made of operators.

Nothing here has a kernel: what is made are linear operators, reductions and delta joins, so
checkpoints, exchanges and explanations know them already.
"""
