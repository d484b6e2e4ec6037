"""Relational operators and SQL queries, translated into other operators.

Nothing here has a kernel: the results are linear operators, reductions and delta joins, so
checkpoints, exchanges and explanations need no code for it.
"""
