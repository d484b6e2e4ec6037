"""Keyed upserts in, differential updates out, exactly once, with a frontier.

A plan is a value; `evaluate` runs it in this process on literal records, and the
`ikebana run` command runs it over Kafka topics on Spark.  Neither Spark nor Kafka is
imported here, and nothing else before it is used: a command that asks for help waits for
no database.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ikebana.arrangements.update import (
        Update,
        accumulate,
        consolidate,
        differentiate,
        integrate,
        negate,
    )
    from ikebana.codecs.change import Column
    from ikebana.errors import ConfigError, IkebanaError, PlanError
    from ikebana.processor.building.collection import Collection, Topic, event_time
    from ikebana.processor.building.pipeline import Pipeline, load
    from ikebana.processor.building.rows import ColumnType
    from ikebana.processor.engine.evaluate import Evaluation, evaluate
    from ikebana.processor.kernels.state_machine import TOMBSTONE
    from ikebana.processor.kernels.user_calls import Refused
    from ikebana.processor.linear import steps
    from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, JoinInput
    from ikebana.processor.planning.plan import (
        Concat,
        EventTime,
        History,
        Input,
        Linear,
        Output,
        Plan,
        Reduce,
        ReduceRows,
        StateMachine,
        Upsert,
    )
    from ikebana.processor.spark.topic_source import register
    from ikebana.serving.aligned import follow
    from ikebana.serving.client import connect
    from ikebana.serving.folder import open  # noqa: A004 - ikebana.open

__version__ = "0.1.0"

# Where each name lies.
_HOMES = {
    "arrangements.update": (
        "Update",
        "accumulate",
        "consolidate",
        "differentiate",
        "integrate",
        "negate",
    ),
    "codecs.change": ("Column",),
    "errors": ("ConfigError", "IkebanaError", "PlanError"),
    "processor.building.collection": ("Collection", "Topic", "event_time"),
    "processor.building.pipeline": ("Pipeline", "load"),
    "processor.building.rows": ("ColumnType",),
    "processor.engine.evaluate": ("Evaluation", "evaluate"),
    "processor.kernels.state_machine": ("TOMBSTONE",),
    "processor.kernels.user_calls": ("Refused",),
    "processor.linear": ("steps",),
    "processor.planning.joins.query": ("AsOfJoin", "DeltaJoin", "JoinInput"),
    "processor.planning.plan": (
        "Concat",
        "EventTime",
        "History",
        "Input",
        "Linear",
        "Output",
        "Plan",
        "Reduce",
        "ReduceRows",
        "StateMachine",
        "Upsert",
    ),
    "processor.spark.topic_source": ("register",),
    "serving.aligned": ("follow",),
    "serving.client": ("connect",),
    "serving.folder": ("open",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "TOMBSTONE",
    "AsOfJoin",
    "Collection",
    "Column",
    "ColumnType",
    "Concat",
    "ConfigError",
    "DeltaJoin",
    "Evaluation",
    "EventTime",
    "History",
    "IkebanaError",
    "Input",
    "JoinInput",
    "Linear",
    "Output",
    "Pipeline",
    "Plan",
    "PlanError",
    "Reduce",
    "ReduceRows",
    "Refused",
    "StateMachine",
    "Topic",
    "Update",
    "Upsert",
    "accumulate",
    "connect",
    "consolidate",
    "differentiate",
    "evaluate",
    "event_time",
    "follow",
    "integrate",
    "load",
    "negate",
    "open",
    "register",
    "steps",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = f"{__name__}.{_HOME_OF[name]}"
    if name == "steps":
        value: object = importlib.import_module(f"{home}.{name}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
