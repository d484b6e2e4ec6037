"""Sinks: closed batches into databases and tables, each exactly once; see docs/deliver.md."""

from ikebana.delivering.columns import TargetColumn
from ikebana.delivering.delivery import DeliveredTopics, Delivery, DeliveryProgress, deliver
from ikebana.delivering.sink import Batch, Sink, TargetAwayError, TargetTable
from ikebana.processor.authoring.deliver_section import Mode

__all__ = [
    "Batch",
    "DeliveredTopics",
    "Delivery",
    "DeliveryProgress",
    "Mode",
    "Sink",
    "TargetAwayError",
    "TargetColumn",
    "TargetTable",
    "deliver",
]
