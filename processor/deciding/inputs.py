"""Whether input topics are still what they were when they were last read."""

from collections.abc import Mapping, Sequence

from ikebana.errors import SourceError
from ikebana.processor.deciding.refusal import Reason, Refusal
from ikebana.processor.deciding.topic import Topic
from ikebana.processor.planning.plan import Plan
from ikebana.processor.timing.diff_input import Closed

Positions = Mapping[str, Mapping[int, int]]
_ANEW = "Start with a new checkpoint and new output topics."


def topics_refusal(
    names: Sequence[str], found: Mapping[str, Topic], ids: Mapping[str, str]
) -> Refusal | None:
    """Refuse topics that are not there, or are others than `ids` of before say."""
    if missing := [name for name in names if name not in found]:
        return _missing(missing, known=any(name in ids for name in missing))
    for name in names:
        if ids.get(name, found[name].id) != found[name].id:
            return Refusal(
                Reason.TOPIC_MADE_ANEW,
                f'input topic "{name}" was deleted and made anew: its offsets mean other '
                "records now",
                _ANEW,
                SourceError,
            )
    return None


def lost_end(ends: Positions, positions: Positions) -> Refusal | None:
    """Refuse a partition that ends before what has been read of it."""
    for topic, by in ends.items():
        for partition, end in by.items():
            if end < (position := positions.get(topic, {}).get(partition, 0)):
                return Refusal(
                    Reason.LOST_END,
                    f"{topic}[{partition}] ends at {end}, but has been read up to "
                    f"{position}: it lost records",
                    _ANEW,
                    SourceError,
                )
    return None


def read_whole(plan: Plan) -> dict[str, list[str]]:
    """The topics of which nothing may be missing, and what has to be there of each."""
    found = {}
    for source in plan.inputs:
        if source.traits.is_updates or source.transaction_topic is not None:
            for topic in (*source.topics, *filter(None, [source.transaction_topic])):
                is_diff = source.traits.kind == "updates"
                found[topic] = [topic, topic + ".progress"] if is_diff else [topic]
    return found


def beginnings_refusal(
    plan: Plan, found: Mapping[str, Topic], begins: Positions
) -> Refusal | None:
    """Refuse inputs of which something is missing that would be waited for.

    `found` are those of `read_whole` and of transactions that there are, `begins` the first
    offsets that they still have.
    """
    for topic in plan.transaction_topics:
        if (count := found[topic].partitions) != 1:
            return Refusal(
                Reason.TRANSACTIONS_IN_PARTS,
                f'cannot read transactions from "{topic}": it has {count} partitions, '
                "so its records have no order",
                "Make the topic with one partition, before the connector does.",
                SourceError,
            )
    formats = {topic: source.value_format for source in plan.inputs for topic in source.topics}
    formats |= {
        topic: source.value_format
        for source in plan.inputs
        for topic in filter(None, [source.transaction_topic])
    }
    for topic, wanted in read_whole(plan).items():
        for name in wanted:
            if name not in found:
                return Refusal(
                    Reason.MISSING_INPUT,
                    f'cannot read "{topic}" as {formats[topic]}: topic "{name}" does not exist',
                    "Start the pipeline that writes it, or mend the name.",
                    SourceError,
                )
        for name in wanted:
            for partition, begin in sorted(begins[name].items()):
                if begin > 0:
                    return Refusal(
                        Reason.LOST_BEGINNING,
                        f'cannot read "{topic}": the beginning of {name}[{partition}] '
                        "was deleted, and what was there would be waited for",
                        "Such topics need retention.ms=-1 and retention.bytes=-1.",
                        SourceError,
                    )
    return None


def writer_of(topic: str, known: str, closed: Sequence[Closed]) -> str | Refusal:
    """The checkpoint that writes a diff topic; `known` is the one of before, if there was."""
    for record, _ in closed:
        if known and record.checkpoint != known:
            return Refusal(
                Reason.OUTPUT_OF_ANOTHER_CHECKPOINT,
                f'topic "{topic}" was written by checkpoint {known}, and is now '
                f"by {record.checkpoint}: its updates begin anew",
                _ANEW,
                SourceError,
            )
        known = record.checkpoint
    return known


def _missing(names: list[str], *, known: bool) -> Refusal:
    """Refuse input topics that are not there; `known` ones have been read from."""
    listed = ", ".join(f'"{name}"' for name in names)
    one = len(names) == 1
    fact = f"input topic {listed} does not exist" if one else f"input topics {listed} do not exist"
    if known:
        deleted = "It was deleted" if one else "What has been read from was deleted"
        hint = f"{deleted}: start with a new checkpoint and new output topics."
    else:
        them, name = ("it", "its name") if one else ("them", "their names")
        hint = f"Create {them}, or mend {name} in the pipeline file."
    return Refusal(Reason.MISSING_INPUT, fact, hint, SourceError)
