"""Encode updates as messages of an output's format; an update that it cannot write is an error.

The format `diff` is written as updates come, not here.  The others need all updates of a time and
a key together.  A shard has them, since a key lies in one shard, and the planner lets no step
before these formats change keys.  For formats that need one value for a key, an output that
cannot have more is written without state; any other is checked against state.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import LARGEST, TOO_LARGE
from ikebana.codecs import cdcv2
from ikebana.codecs.debezium_out import EnvelopeOrigin
from ikebana.codecs.diff import time_header
from ikebana.codecs.formats import FactCodec
from ikebana.codecs.output_messages import (
    OutputMessage,
    Violation,
    encoded,
    violation_record,
)
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import single_value
from ikebana.processor.planning import outputs
from ikebana.processor.planning.outputs import shape_of
from ikebana.processor.planning.plan import Output, Plan


class Formatted(NamedTuple):
    """Messages of an output, error records of updates without a message, and counts by time.

    `times` has the number of distinct updates at each time, for formats that publish it with
    their progress.
    """

    messages: Sequence[OutputMessage]
    errors: list[KeyedUpdate]
    times: dict[int, int]


def formatted(
    plan: Plan, output: Output, updates: Sequence[KeyedUpdate], store: Store
) -> Formatted:
    """The messages of one shard's updates of one batch.

    `store` has the values of keys, for an output that `outputs.watches_values`.
    """
    if output.traits.facts is not None:
        return _facts(output, output.traits.facts(), updates)
    result = _by_key(plan, output, updates, store)
    if output.traits.schemas is None:
        return result
    writers = output.traits.schemas().writers(shape_of(plan, output))
    messages, violations = encoded(writers, result.messages)
    return Formatted(messages, [*result.errors, *_errors(output, violations)], {})


def _by_key(plan: Plan, output: Output, updates: Sequence[KeyedUpdate], store: Store) -> Formatted:
    """The messages of formats that write the changes of keys, in JSON."""
    traits = output.traits
    assert traits.codec is not None, f"{output.format} is written as it comes"
    errors: list[KeyedUpdate] = []
    empty = None
    if outputs.watches_values(plan, output):
        changes = single_value.step(store, updates, output.name, keyless=not traits.latest)
        if traits.latest:
            # The state has the value of each key after the change.
            latest = [
                OutputMessage(change.key, change.after, [time_header(change.time)])
                for change in changes.keys
                if change.before != change.after
            ]
            return Formatted(latest, changes.errors, {})
        empty = {(each.time, each.key) for each in changes.keys if each.empty}
        errors = changes.errors
    origin = EnvelopeOrigin(plan.name, output.name, tombstones=output.tombstones)
    messages, violations = traits.codec().write(updates, origin, empty)
    return Formatted(messages, [*errors, *_errors(output, violations)], {})


def _errors(output: Output, violations: Sequence[Violation]) -> list[KeyedUpdate]:
    return [
        KeyedUpdate(None, violation_record(output.name, violation), violation.time, 1)
        for violation in violations
    ]


def _facts(output: Output, codec: FactCodec, updates: Sequence[KeyedUpdate]) -> Formatted:
    """CDCv2's messages, which have one diff for a datum and time: no larger sum can be written."""
    fitting, errors = [], []
    for fact in cdcv2.consolidate(updates):
        key, _, time, diff = fact
        if -LARGEST <= diff <= LARGEST:
            fitting.append(fact)
        else:
            record = violation_record(output.name, Violation(key, time, TOO_LARGE))
            errors.append(KeyedUpdate(None, record, time, 1))
    written = codec.encode_updates(fitting)
    messages = [OutputMessage(None, value, []) for value in written]
    return Formatted(messages, errors, dict(Counter(time for _, _, time, _ in fitting)))
