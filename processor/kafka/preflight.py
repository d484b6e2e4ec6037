"""Checks of the brokers before a start: topics, rights, and what belongs together.

Rights are asked for where the brokers tell them: of topics that exist, by what they say
that we may do, and of topics that a start would make, by having them judge the request
without doing it.

A pipeline may be running meanwhile.  What it writes is read before the log that must be
ahead of it, and compared with that of before where it must not be behind.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, ParamSpec, TypeAlias

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    NewTopic,
)
from msgspec.structs import replace

from ikebana.arrangements.errors import IkebanaError
from ikebana.processor.checkpoint import Birth, Checkpoint, Logged, newborn
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.evolution import resumed
from ikebana.processor.explain.words import counted
from ikebana.processor.kafka import client, markers, takeover, topics
from ikebana.processor.kafka.client import patiently
from ikebana.processor.kafka.reader import Reader
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import Plan
from ikebana.processor.preflight import Check, Kept, checked, kept, refused
from ikebana.processor.reading.codec_of import needs_registry
from ikebana.processor.timing.reclock import SourceOffset

P = ParamSpec("P")

_NEVER_RUN = "nothing of this name has run yet"
_REQUEST_S = 10.0
_REGISTRY_S = 5.0
FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_READ = {AclOperation.READ: "Read", AclOperation.DESCRIBE: "Describe"}
_WRITE = {AclOperation.WRITE: "Write", AclOperation.DESCRIBE: "Describe"}


class Found(NamedTuple):
    """A topic as the brokers tell of it, and what they let us do with it."""

    topic: topics.Topic
    allowed: frozenset[AclOperation]


# A topic that is there, why it is not told of, or None if there is none.
State: TypeAlias = Found | KafkaError | None


def of_brokers(settings: Settings) -> list[Check]:
    """Whether the brokers answer to each of the clients' settings."""
    clients = {
        "kafka": dict(settings.kafka),
        "source.kafka": {**settings.kafka, **settings.source_kafka},
        "sink.kafka": {**settings.kafka, **settings.sink_kafka},
    }

    found = []
    for name, its in clients.items():
        if name == "kafka" or its != clients["kafka"]:
            what = "brokers" if name == "kafka" else f"brokers by {name}"
            found.append(checked(what, functools.partial(_answer, its)))
    return found


def _answer(settings: Mapping[str, str]) -> str:
    client.reach(settings)
    return f"{settings['bootstrap.servers']} answers"


def told_whole(
    what: str,
) -> Callable[[Callable[P, Iterator[Check]]], Callable[P, Iterator[Check]]]:
    """Make what ends some checks in the middle one more of them."""

    def wrapped(checks: Callable[P, Iterator[Check]]) -> Callable[P, Iterator[Check]]:
        @functools.wraps(checks)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> Iterator[Check]:
            try:
                yield from checks(*args, **kwargs)
            except IkebanaError as error:
                yield refused(what, error)
            except KafkaException as error:
                yield Check(what, "unknown", f"could not be looked at: {error.args[0].str()}")

        return guarded

    return wrapped


@told_whole("topics")
def of_topics(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Inputs, outputs and the pipeline's own topics; the brokers answer.

    What the checkpoint says is only compared with if it can be read.
    """
    try:
        held = kept(Checkpoint(settings.checkpoint))
    except IkebanaError:
        held = None
    yield from _of_inputs(plan, settings, held)
    admin = client.admin(settings.kafka)
    read = [plan.markers_topic, *(output.progress_topic for output in plan.published)]
    read += [plan.loopback_topic] if progress.has_hops(plan) else []
    own = [*read, *(output.topic for output in plan.published)]
    found = _described(client.admin({**settings.kafka, **settings.sink_kafka}), own)
    # Producers may be somebody else than consumers.
    readable = _described(admin, read) if settings.sink_kafka else found
    bad = False
    for name in own:
        if (state := found[name]) is not None:
            check = _of_own(name, state, readable[name] if name in read else None)
            bad |= check.status != "ok"
            yield check
    shards = settings.shards if held is None or held.birth is None else held.birth.shards
    missing = takeover.missing_topics(
        plan, settings, shards, admin, {name for name, state in found.items() if state is not None}
    )
    for name, partitions, made_with in missing:
        yield _of_missing(admin, name, partitions, settings.replication_factor, made_with)
    if held is None or bad:
        why = "the checkpoint could not be read" if held is None else "a topic may not be used"
        yield Check("what belongs together", "unknown", f"not looked at: {why}")
        return
    existing = {name: state.topic for name, state in found.items() if isinstance(state, Found)}
    yield _together(plan, settings, admin, held, existing)


def of_registry(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Whether the schema registry answers, if any input needs it."""
    if not any(map(needs_registry, plan.inputs)):
        return
    # Its client takes a while to import, and few need it.
    from ikebana.processor.kafka.registry import Registry

    def look() -> str:
        Registry(settings.registry, _REGISTRY_S).reach()
        return "it answers"

    yield checked("schema registry", look)


def _of_inputs(plan: Plan, settings: Settings, held: Kept | None) -> Iterator[Check]:
    admin = client.admin({**settings.kafka, **settings.source_kafka})
    names = [name for source in plan.inputs for name in source.topics]
    found = _described(admin, names)
    read = None if held is None else _read_so_far(settings, held)
    for name in names:
        what, state = f'input topic "{name}"', found[name]
        if state is None:
            remedy = "Create it, or mend its name in the pipeline file."
            yield Check(what, "failed", "does not exist", remedy)
        elif isinstance(state, KafkaError):
            yield _forbidden(what, state, _READ.values())
        elif lacking := [told for right, told in _READ.items() if right not in state.allowed]:
            yield Check(what, "failed", "may not be read", _grant(lacking))
        elif read is not None and read.topic_ids.get(name, state.topic.id) != state.topic.id:
            yield Check(
                what,
                "failed",
                "was deleted and made anew: its offsets mean other records now",
                "Start with a new checkpoint and new output topics.",
            )
        else:
            positions = {} if read is None else read.positions.get(name, {})
            yield _of_positions(what, admin, name, state.topic.partitions, positions)


def _read_so_far(settings: Settings, held: Kept) -> SourceOffset | None:
    """Up to where the checkpoint has read for good."""
    if held.birth is None or held.logged is None:
        return None
    if held.logged.committed < held.birth.first_batch:
        return held.birth.start
    committed = held.logged.committed - held.birth.first_batch
    return Checkpoint(settings.checkpoint).offset(committed)


def _of_positions(
    what: str, admin: AdminClient, name: str, partitions: int, positions: Mapping[int, int]
) -> Check:
    """Whether what comes next is still there."""
    begins = topics.beginnings(admin, {name: partitions})[name]
    gone = [p for p, begin in begins.items() if begin > positions.get(p, begin)]
    if not gone:
        return Check(what, "ok", f"{counted(partitions, 'partition')}, may be read")
    at = ", ".join(f"{name}[{p}]@{positions[p]}" for p in gone)
    return Check(
        what,
        "failed",
        f"{at} comes next, and is no longer there",
        "Raise the topic's retention. To go on without the lost records, start with a new "
        "checkpoint and new output topics.",
    )


def _of_own(name: str, state: State, readable: State) -> Check:
    """Whether a topic may be written, and read if it is one of those that we read."""
    what, told = f'topic "{name}"', "may be written"
    if isinstance(state, KafkaError):
        return _forbidden(what, state, _WRITE.values())
    assert state is not None
    if lacking := [right for of, right in _WRITE.items() if of not in state.allowed]:
        return Check(what, "failed", "may not be written", _grant(lacking))
    if isinstance(readable, Found):
        if lacking := [right for of, right in _READ.items() if of not in readable.allowed]:
            return Check(what, "failed", "may not be read", _grant(lacking))
        told = "may be read and written"
    elif isinstance(readable, KafkaError):
        return _forbidden(what, readable, _READ.values())
    return Check(what, "ok", f"{counted(state.topic.partitions, 'partition')}, {told}")


def _of_missing(
    admin: AdminClient,
    name: str,
    partitions: int,
    replication: int,
    made_with: Mapping[str, str],
) -> Check:
    """Whether a start may make a topic; the brokers judge it and make none."""
    what = f'topic "{name}"'
    new = NewTopic(name, partitions, replication, config=dict(made_with))
    try:
        patiently(
            lambda: admin.create_topics([new], request_timeout=_REQUEST_S, validate_only=True)[
                name
            ].result(),
            what,
        )
    except KafkaException as error:
        settings = ", ".join(f"{key}={value}" for key, value in sorted(made_with.items()))
        return Check(
            what,
            "failed",
            f"does not exist and cannot be made: {error.args[0].str()}",
            f"Make it with {counted(partitions, 'partition')} and {settings}, or grant Create. "
            "sink.replication_factor and sink.topic_settings change what is asked for.",
        )
    return Check(what, "ok", f"will be made, with {counted(partitions, 'partition')}")


def _together(
    plan: Plan,
    settings: Settings,
    admin: AdminClient,
    held: Kept,
    existing: Mapping[str, topics.Topic],
) -> Check:
    """Whether checkpoint, markers and outputs are of one history, as a start will ask."""
    what = "what belongs together"
    checkpoint, birth = Checkpoint(settings.checkpoint), held.birth
    if birth is None and not existing:
        # A consumer, which a look would take, has brokers make their topic of groups.
        return Check(what, "ok", _NEVER_RUN)
    if birth is None:
        nothing = SourceOffset(-1, 0, 0, {}, plan.fingerprint())
        birth = newborn(settings.checkpoint, plan, settings.shards, nothing)
    plan = resumed(birth, plan)
    reader = Reader(settings.kafka)
    try:
        topic = plan.markers_topic
        shards = min(birth.shards, existing[topic].partitions - 1) if topic in existing else 0
        lease = markers.last_lease(reader, topic) if topic in existing else None
        takeover.check_lease(plan, birth, lease, existing)
        known: dict[int, markers.Marker | None] = dict.fromkeys(range(birth.shards))
        known |= {shard: markers.last_marker(reader, topic, shard) for shard in range(shards)}
        last = takeover.last_of_outputs(plan, reader, existing)
        logged = _logged(checkpoint, birth, held.logged)
        takeover.check_outputs(plan, birth, logged, last, admin, existing)
        takeover.check_markers(birth, logged, known, plan)
    except IkebanaError as error:
        return refused(what, error)
    except KafkaException as error:
        return Check(what, "unknown", f"could not be read: {error.args[0].str()}")
    finally:
        reader.close()
    if lease is None:
        return Check(what, "ok", _NEVER_RUN)
    return Check(what, "ok", f"instance {lease.incarnation} was the last, by {lease.holder}")


def _logged(checkpoint: Checkpoint, birth: Birth, before: Logged | None) -> Logged:
    """The log's end now, with what was committed before the markers were read."""
    if before is None:
        return Logged(None, birth.first_batch - 1, birth.first_batch - 1)
    return replace(checkpoint.logged(birth.first_batch), committed=before.committed)


def _described(admin: AdminClient, names: Iterable[str]) -> dict[str, State]:
    """Each topic with our rights on it, or why it is not told; None if there is none."""
    asked = TopicCollection(list(names))

    def ask() -> dict[str, State]:
        found: dict[str, State] = {}
        answers = admin.describe_topics(
            asked, include_authorized_operations=True, request_timeout=_REQUEST_S
        )
        for name, answer in answers.items():
            try:
                told = answer.result()
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    found[name] = None
                elif cause.code() in FORBIDDEN:
                    found[name] = cause
                else:
                    raise
                continue
            topic = topics.Topic(str(told.topic_id), len(told.partitions))
            found[name] = Found(topic, frozenset(told.authorized_operations or ()))
        return found

    return patiently(ask, "the brokers")


def _forbidden(what: str, error: KafkaError, rights: Iterable[str]) -> Check:
    return Check(what, "failed", f"may not be seen: {error.str()}", _grant(rights))


def _grant(rights: Iterable[str]) -> str:
    return f"Grant {' and '.join(rights)} on it to the principal of this client."
