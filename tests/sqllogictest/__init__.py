"""Views against files of SQLite's sqllogictest, in the dialects of SQLite's and DuckDB's tests.

A file creates and changes tables, and asks queries with the rows that they must answer.  Here
each change of a table becomes a change of an input of upserts, and each query a view, which is
run in this process over all changes so far:

    python -m tests.sqllogictest FILE…
"""
