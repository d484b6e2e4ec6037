"""The processes beside Spark that make its Python cheap: the same on a laptop and on executors.

On every machine there is one *host* (`host.py`): it has imported everything, and forks what is
needed.  A driver starts it first, beside the JVM (`starting.py`), and what Spark runs as its
Python is a program that asks it for a fork (`python`, `stand_in.py`).  On an executor Spark's
daemon is ours (`daemon.py`), which forks the host.  A host has *owners*, which keep the databases
of shards open between batches (`owner.py`), and the driver's also *readers*, which read batches
before Spark runs them (`batch_reader.py`).  Whoever needs them finds the host by the variable
`IKEBANA_HOST` (`owners.py`), which all processes of a machine inherit.
"""
