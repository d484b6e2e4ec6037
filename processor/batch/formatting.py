"""Updates as the messages of an output's format, and what a format cannot write.

`diff` is written as the updates come, and not here.  The others need all updates of a time
and of a key together, which a shard has: keys lie in one shard, and the planner lets no step
before these formats make other keys.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ikebana.codecs import cdcv2, cdcv2_avro
from ikebana.codecs.debezium_out import Origin, to_envelopes
from ikebana.codecs.upsert_out import Message, to_upserts, violation_record
from ikebana.processor.batch.rows import KeyedUpdate
from ikebana.processor.planning.plan import Output, Plan

# Well below what brokers take by default.
_LARGEST_STATEMENT = 512 << 10
_CDCV2 = {"cdcv2-json": cdcv2, "cdcv2-avro": cdcv2_avro}


class Formatted(NamedTuple):
    """Messages of an output, error records of what has none, and counts by time.

    `times` are the distinct updates by time, for the formats whose progress says them.
    """

    messages: Sequence[Message]
    errors: list[KeyedUpdate]
    times: dict[int, int]


def formatted(plan: Plan, output: Output, updates: Sequence[KeyedUpdate]) -> Formatted:
    """The messages of one shard's updates of one batch."""
    match output.format:
        case "upsert":
            messages, violations = to_upserts(updates)
        case "debezium-json":
            messages, violations = to_envelopes(updates, Origin(plan.name, output.name))
        case "cdcv2-json" | "cdcv2-avro":
            counts = cdcv2.counts(updates)
            written = _CDCV2[output.format].encode_updates(updates, _LARGEST_STATEMENT)
            return Formatted([Message(None, value, []) for value in written], [], counts)
        case _:
            raise AssertionError(f"{output.format} is written as it comes")
    errors = [
        KeyedUpdate(None, violation_record(output.name, violation), violation.time, 1)
        for violation in violations
    ]
    return Formatted(messages, errors, {})


def progress_messages(
    output: Output, lower: int, upper: int, times: dict[int, int]
) -> Iterator[bytes]:
    """The progress of a batch that a format has in the output's own topic."""
    if output.format in _CDCV2:
        counts = dict(sorted(times.items()))
        yield from _CDCV2[output.format].encode_progress(lower, upper, counts, _LARGEST_STATEMENT)


def pack_times(times: dict[int, int]) -> list[int]:
    """Counts by time as alternating steps of time and counts, which are small numbers."""
    packed: list[int] = []
    last = 0
    for time, count in sorted(times.items()):
        packed += (time - last, count)
        last = time
    return packed


def add_times(times: dict[int, int], packed: Sequence[int]) -> None:
    """Add what `pack_times` has packed."""
    time = 0
    for step, count in zip(packed[::2], packed[1::2], strict=True):
        time += step
        times[time] = times.get(time, 0) + count
