"""The processes beside Spark that make its Python cheap: the same on a laptop and on executors.

Every machine has one *host* (`host.py`): it has imported everything, and forks other processes.
A driver starts it first, beside the JVM, and Spark's Python is a program that asks it for a fork
(`python`, `stand_in.py`).  On an executor Spark's daemon is ours (`daemon.py`), which forks the
host.  A host has *owners*, which keep the databases of shards open between batches, and *readers*,
which read batches before Spark runs them (`serving.py`).  Their clients find the host by the
variable `IKEBANA_HOST` (`owners.py`), which all processes of a machine inherit.
"""
