"""Loops in Cython, each beside its form in Python.

A module here does for the usual case what a function elsewhere does in Python, several times
faster, and leaves every other case to that function.  So both give the same, and whoever wants to
know what is computed reads the Python.

The modules are built together with the package where there is a C compiler.  Who uses one does
without it if it cannot be imported: because it was not built, or because `IKEBANA_COMPILED=0` is
in the environment, as for a comparison.
"""

# Decision (Cython): Loops over records are compiled for the usual case alone. mypyc leaves
# objects as they are, C says less with more, Rust would cost each build a compiler and crates,
# cavro makes Python data. Memory is unguarded: `make sanitized`.

import os

if os.environ.get("IKEBANA_COMPILED") == "0":
    raise ImportError("IKEBANA_COMPILED is 0: everything is to run in Python")
