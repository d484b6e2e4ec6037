"""A first pipeline file for a topic: what its messages look like, proposed and written down.

Pure functions of some messages; `kafka.sampling` fetches them.
"""
