"""Problems of topics: their names, and conflicts between parts that read or write them."""

import re
from collections import Counter
from collections.abc import Iterator

from ikebana.processor.planning.operators.kind import Problem
from ikebana.processor.planning.plan import Input, Plan

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def topic_problems(plan: Plan) -> Iterator[Problem]:
    """Topics that are none, or that several parts of a plan have."""
    read = {topic: f"inputs.{i.name}.topic" for i in plan.inputs for topic in i.topics}
    told = {
        source.transaction_topic: f"inputs.{source.name}.event_time.transactions"
        for source in reversed(plan.inputs)
        if source.transaction_topic is not None
    }
    for topic, path in told.items():
        if topic in read:
            yield path, f"topic {topic!r} is also read, at {read[topic]}"
        read.setdefault(topic, path)
    own = (plan.markers_topic, plan.loopback_topic)
    written = dict.fromkeys(own, "pipeline")
    for topic in own:
        if topic in read:
            yield "pipeline", f"topic {topic!r} is also read, at {read[topic]}"
    places = [(f"outputs.{o.name}.topic", o.topic) for o in plan.outputs]
    places.append(("errors.topic", plan.error_topic))
    for path, topic in [*((path, topic) for topic, path in read.items()), *places]:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            yield path, f"{topic!r} is not a Kafka topic name (letters, digits, '.', '_', '-')"
    for source in plan.inputs:
        for topic, count in Counter(source.topics).items():
            if count > 1:
                yield f"inputs.{source.name}.topic", f"topic {topic!r} is listed {count} times"
    yield from _shared_problems(plan)
    for path, topic in places:
        if _TOPIC.fullmatch(topic) and not _TOPIC.fullmatch(topic + ".progress"):
            yield path, f"{topic!r} is too long to have a topic '<topic>.progress' beside it"
        for used in (topic, topic + ".progress"):
            if used in read:
                yield path, f"topic {used!r} is also read, at {read[used]}"
            elif used in written:
                yield path, f"topic {used!r} is also written, at {written[used]}"
            written[used] = path


def _shared_problems(plan: Plan) -> Iterator[Problem]:
    """Why several inputs cannot read one topic.

    A topic has one position for all of them.  So they begin at one place, and are read at the
    same pace: as records come, or as far as the times of others are closed.
    """
    told: set[tuple[str, str]] = set()
    for topic in dict.fromkeys(plan.topics):
        first, *others = plan.readers(topic)
        for other in others:
            for path, problem in _not_together(topic, first, other):
                if (path, first.name) not in told:
                    told.add((path, first.name))
                    yield path, problem


def _not_together(topic: str, first: Input, other: Input) -> Iterator[Problem]:
    """What two inputs that read a topic do not agree on."""
    path = f"inputs.{other.name}"
    read = f"topic {topic!r} is also read, at inputs.{first.name}.topic"
    if first.traits.is_updates or other.traits.is_updates:
        updates = next(each for each in (first, other) if each.traits.is_updates)
        yield (
            f"{path}.topic",
            f"{read}, and updates of {updates.value_format} have progress of their own, for one "
            "input alone; any number of operators may read that one",
        )
        return
    if first.start != other.start:
        yield (
            f"{path}.start",
            f'is "{other.start}", and {read}, from the "{first.start}" on: both have one position '
            f"there; set both to the same",
        )
    if first.is_dated != other.is_dated:
        has, lacks = (first, other) if first.is_dated else (other, first)
        yield (
            f"{path}.event_time",
            f"{read}, and inputs.{has.name} has event_time where inputs.{lacks.name} has none: "
            "records that say their times are read as they come, others when theirs is closed; "
            "give it to both or to neither",
        )
