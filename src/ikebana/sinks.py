"""Sinks: closed batches into databases and tables, each exactly once; see docs/deliver.md."""

from ikebana.delivering.columns import Column
from ikebana.delivering.delivery import Delivery, Standing, Topics, deliver
from ikebana.delivering.sink import Batch, Mode, Sink, Table, TargetAwayError

__all__ = [
    "Batch",
    "Column",
    "Delivery",
    "Mode",
    "Sink",
    "Standing",
    "Table",
    "TargetAwayError",
    "Topics",
    "deliver",
]
