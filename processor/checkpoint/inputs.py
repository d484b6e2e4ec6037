"""Check that input topics are the same as when they were last read."""

from collections.abc import Callable, Collection, Mapping, Sequence

from ikebana.errors import SourceError
from ikebana.processor.base.offsets import Offsets, TopicInfo, offset_in, progress_topic
from ikebana.processor.base.texts import shown
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.planning import starts
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.batch_selection import ClosedProgress

_ANEW = "Start with a new checkpoint and new output topics."


def topics_refusal(
    names: Sequence[str],
    existing: Mapping[str, TopicInfo],
    ids: Mapping[str, str],
    near: Callable[[str], str | None] = lambda _: None,
) -> Refusal | None:
    """Refuse topics that do not exist, or that have other ids than the earlier `ids`.

    `near` finds an existing topic with a name similar to another one.
    """
    if missing := [name for name in names if name not in existing]:
        return _missing(missing, near, read_before=any(name in ids for name in missing))
    for name in names:
        if ids.get(name, existing[name].id) != existing[name].id:
            return Refusal(
                Reason.TOPIC_CREATED_AGAIN,
                f'input topic "{name}" was deleted and created again: its offsets now name other '
                "records",
                _ANEW,
                SourceError,
            )
    return None


def lost_end(ends: Offsets, positions: Offsets) -> Refusal | None:
    """Refuse a partition that ends before the offset up to which it has been read."""
    for topic, by in ends.items():
        for partition, end in by.items():
            if end < (position := offset_in(topic, partition, positions)):
                return Refusal(
                    Reason.LOST_END,
                    f"{topic}[{partition}] ends at offset {end}, but has been read up to offset "
                    f"{position}: it has lost records",
                    _ANEW,
                    SourceError,
                )
    return None


def again_refusal(
    plan: Plan, begins: Offsets, have: Offsets, policies: Mapping[str, str]
) -> Refusal | None:
    """Refuse to read an input again if its topic has lost records that were read first.

    `begins` are the offsets at which the second reading begins or goes on, by position key, `have`
    the first offsets that exist now, by topic, and `policies` the cleanup policies of topics.  A
    compacted topic has the last record of each key, which is enough for an upsert, but not for a
    state machine.
    """
    for name in plan.backfills:
        source = plan.input(name)
        called = shown(name)
        for topic in source.topics:
            first_read = begins.get(plan.position_key(source, topic), {})
            for partition, begin in sorted(have.get(topic, {}).items()):
                if begin > first_read.get(partition, 0):
                    return Refusal(
                        Reason.LOST_BEGINNING,
                        f'input "{called}" would have to be read again from offset '
                        f"{first_read.get(partition, 0)} of {topic}[{partition}], which now "
                        f"begins at offset {begin}: the records before are gone",
                        f'Leave input "{called}" and what reads its rows as they were, or fill '
                        "the topic again. What needs more of its rows can read a copy of the "
                        "topic by a new input.",
                        SourceError,
                    )
            machines = [machine.name for machine in plan.machines if machine.input == name]
            if machines and "compact" in policies.get(topic, ""):
                return Refusal(
                    Reason.LOST_BEGINNING,
                    f'state machine "{shown(machines[0])}" would have to read topic "{topic}" '
                    "again, which is compacted: it may lack events",
                    "Give the state machine a greater version, and `migrate` its states.",
                    SourceError,
                )
    return None


def first_offsets(
    source: Input,
    topic: str,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    at: Callable[[int], Mapping[int, int]],
) -> dict[int, int] | Refusal:
    """Choose the offsets at which an input begins to read a topic.

    `begins` and `ends` are the first and last offsets of its partitions; `at` finds in each the
    first offset at or after a time, and leaves out partitions where that is the end.
    """
    match starts.place_of(source.start):
        case "earliest":
            return dict(begins)
        case "latest":
            return dict(ends)
        case starts.AtTime(ms):
            return {**ends, **at(ms)}
        case starts.AtOffsets(offsets):
            wrong = _not_there(topic, offsets, begins, ends)
            if wrong is None:
                return dict(offsets)
            return Refusal(
                Reason.NO_SUCH_START,
                f'input "{source.name}" cannot start at the offsets {source.start}: {wrong}',
                "Set its start to an offset that there is, for each partition of the topic.",
                SourceError,
            )


def _not_there(
    topic: str, offsets: Mapping[int, int], begins: Mapping[int, int], ends: Mapping[int, int]
) -> str | None:
    """Name a partition that does not have its offset; None if all have."""
    for partition in sorted({*offsets, *begins}):
        if partition not in begins:
            return f'topic "{topic}" has no partition {partition}'
        if partition not in offsets:
            return f"none is named for {topic}[{partition}]"
        if not begins[partition] <= offsets[partition] <= ends[partition]:
            return (
                f"{topic}[{partition}] has the offsets from {begins[partition]} up to "
                f"{ends[partition]}"
            )
    return None


def read_whole(plan: Plan) -> dict[str, list[str]]:
    """List the topics that have to be read from the beginning, each with all topics it needs."""
    result = {}
    for source in plan.inputs:
        if source.traits.is_updates or source.transaction_topic is not None:
            for topic in (*source.topics, *filter(None, [source.transaction_topic])):
                is_diff = source.traits.kind == "updates"
                result[topic] = [topic, progress_topic(topic)] if is_diff else [topic]
    return result


def beginnings_refusal(
    plan: Plan,
    existing: Mapping[str, TopicInfo],
    begins: Offsets,
    compacted: Collection[str] = (),
) -> Refusal | None:
    """Refuse inputs that have lost records without which their times could never be complete.

    `existing` has the existing topics of `read_whole` and of transactions, `begins` their first
    offsets.  The `compacted` topics are read from snapshots.
    """
    for topic in plan.transaction_topics:
        if (count := existing[topic].partitions) != 1:
            return Refusal(
                Reason.TRANSACTIONS_IN_PARTS,
                f'cannot read transactions from "{topic}": it has {count} partitions, '
                "so its records have no order",
                "Create the topic with one partition, before the connector starts.",
                SourceError,
            )
    formats = {topic: source.value_format for source in plan.inputs for topic in source.topics}
    formats |= {
        topic: source.value_format
        for source in plan.inputs
        for topic in filter(None, [source.transaction_topic])
    }
    for topic, needed in read_whole(plan).items():
        if topic in compacted:
            continue
        for name in needed:
            if name not in existing:
                return Refusal(
                    Reason.MISSING_INPUT,
                    f'cannot read "{topic}" as {formats[topic]}: topic "{name}" does not exist',
                    "Start the pipeline that writes it, or correct the name.",
                    SourceError,
                )
        for name in needed:
            for partition, begin in sorted(begins[name].items()):
                if begin > 0:
                    return Refusal(
                        Reason.LOST_BEGINNING,
                        f'cannot read "{topic}": the beginning of {name}[{partition}] '
                        "was deleted, and without it no time would be complete",
                        "Have the topic written again, with retention.ms=-1 and "
                        "retention.bytes=-1, or compacted by `ikebana compact` before its "
                        "records are deleted.",
                        SourceError,
                    )
    return None


def writer_of(topic: str, writer: str, closed: Sequence[ClosedProgress]) -> str | Refusal:
    """Find the checkpoint that writes a diff topic; `writer` is the earlier one, if any."""
    for record, _ in closed:
        if writer and record.checkpoint != writer:
            return Refusal(
                Reason.OUTPUT_OF_ANOTHER_CHECKPOINT,
                f'input topic "{topic}" was written by checkpoint {writer}, and is now written by '
                f"{record.checkpoint}: its updates begin again from the start",
                _ANEW,
                SourceError,
            )
        writer = record.checkpoint
    return writer


def _missing(names: list[str], near: Callable[[str], str | None], *, read_before: bool) -> Refusal:
    """Refuse input topics that do not exist; some may have been `read_before`."""
    listed = ", ".join(f'"{name}"' for name in names)
    one = len(names) == 1
    fact = f"input topic {listed} does not exist" if one else f"input topics {listed} do not exist"
    if read_before:
        hint = f"A topic that has been read was deleted. {_ANEW}"
    else:
        them, name = ("it", "its name") if one else ("them", "their names")
        hint = f"Create {them}, or correct {name} in the pipeline file."
        if meant := [f'"{topic}"' for each in names if (topic := near(each)) is not None]:
            hint += f" Did you mean {' and '.join(meant)}?"
    return Refusal(Reason.MISSING_INPUT, fact, hint, SourceError)
