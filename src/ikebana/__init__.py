"""Keyed upserts in, differential updates out, exactly once, with a frontier.

A plan is a value; `evaluate` runs it in this process on literal records, and the
`ikebana run` command runs it over Kafka topics on Spark.  Neither Spark nor Kafka is
imported here.
"""

from ikebana.arrangements.alt_neu import differentiate, integrate
from ikebana.arrangements.errors import ConfigError, IkebanaError, PlanError
from ikebana.arrangements.update import Update, accumulate, consolidate, negate
from ikebana.codecs.change import Column
from ikebana.processor.configuring.pipeline import load
from ikebana.processor.evaluate import Evaluation, evaluate
from ikebana.processor.joins.query import AsOfJoin, DeltaJoin, JoinInput
from ikebana.processor.linear import steps
from ikebana.processor.planning.plan import (
    Concat,
    EventTime,
    Input,
    Linear,
    Output,
    Plan,
    Reduce,
    StateMachine,
    Upsert,
)

__version__ = "0.1.0"

__all__ = [
    "AsOfJoin",
    "Column",
    "Concat",
    "ConfigError",
    "DeltaJoin",
    "Evaluation",
    "EventTime",
    "IkebanaError",
    "Input",
    "JoinInput",
    "Linear",
    "Output",
    "Plan",
    "PlanError",
    "Reduce",
    "StateMachine",
    "Update",
    "Upsert",
    "accumulate",
    "consolidate",
    "differentiate",
    "evaluate",
    "integrate",
    "load",
    "negate",
    "steps",
]
