"""Linear operators: `query` runs SQL steps, `functions` Python steps, `chain` fuses steps.

An operator is linear when it works on each update by itself: OP(x + y) = OP(x) + OP(y).
It keeps no state, so any number of them in a row is one pass, wherever that pass runs.
"""
