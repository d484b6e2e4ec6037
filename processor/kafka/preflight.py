"""Checks before a start: find what would make it fail, with remedies.

A check is *ok*, *failed*, or *unknown* if it could not be made.  Checks change nothing: they
create no topic, begin no transaction and fence no producer, so a running pipeline continues.
They write and remove a small file beside the checkpoint's files, and leave an unused
transactional id on brokers that check rights.

The pipeline may be running meanwhile.  So the commits in Spark's log are read first, then the
commit records, then the end of the log.  The commit records must be at least as new as those
commits, and the log must be ahead of the commit records.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import ParamSpec

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from ikebana.errors import AccessError, ConfigError, IkebanaError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.machine import java_of
from ikebana.processor.base.notices import Check, checked, refused
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.base.texts import counted, shown
from ikebana.processor.checkpoint.checkpoint import Checkpoint, Logged, metadata_of
from ikebana.processor.checkpoint.describing_edits import describe
from ikebana.processor.checkpoint.next_step import Desired, Observed, next_step, observed_at
from ikebana.processor.checkpoint.recorded_plan import (
    edit_to,
    ineffective_hints,
    with_checkpoint_names,
)
from ikebana.processor.checkpoint.refusal import Refusal
from ikebana.processor.checkpoint.takeover import history
from ikebana.processor.kafka import client, inputs, own_topics, topics, transactions
from ikebana.processor.kafka.client import transactional_producer
from ikebana.processor.kafka.inputs import refuse_lost
from ikebana.processor.kafka.reading_rights import TopicRights
from ikebana.processor.kafka.registry import Registry
from ikebana.processor.kafka.rights import (
    AUTHORIZER,
    Rights,
    broker_settings,
    clients_of,
)
from ikebana.processor.kafka.takeover import KafkaBrokers
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.input_codec import needs_registry
from ikebana.processor.topics.row_files import files_of
from ikebana.processor.topics.source_offset import SourceOffset

P = ParamSpec("P")

_NEVER_RUN = "nothing of this name has run yet"
_REGISTRY_S = 5.0


def of_java(environ: Mapping[str, str]) -> Check:
    """Check that there is a Java for Spark."""

    def look() -> str:
        java, version = java_of(environ)
        return f"version {version}, {java}"

    return checked("Java", look)


def of_histories(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Check that the files of histories can be read, where a start would read them."""
    for source in plan.inputs:
        if source.history is None:
            continue

        def look(name: str = source.name) -> str:
            if observed_at(Checkpoint(settings.checkpoint)) is not None:
                return "the checkpoint has begun, and reads no more files"
            files = files_of(plan)[name]
            rows = sum(each.rows for each in files)
            return f"{counted(rows, 'row')} in {counted(len(files), 'file')}"

        yield checked(f'history of input "{source.name}"', look)


def of_checkpoint(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Check that the checkpoint can be read and written, and fits the plan."""
    where = f'checkpoint "{settings.checkpoint}"'

    def look() -> str:
        observed = observed_at(Checkpoint(settings.checkpoint))
        if observed is None:
            return "new: nothing is there yet"
        return f"{observed.metadata.id}, committed up to batch {observed.logged.committed}"

    def write() -> str:
        Checkpoint(settings.checkpoint).probe()
        return "a small file was written, read and removed"

    def compare() -> str:
        observed = observed_at(Checkpoint(settings.checkpoint))
        if observed is None:
            return "nothing to compare with yet"
        desired = Desired(plan, settings.shards)
        step = next_step(observed, desired)
        if isinstance(step, Refusal):
            raise step.error()
        gist = describe(settings.checkpoint, observed, desired).gist()
        changes = "; ".join(gist) or "the plan and the number of shards are the checkpoint's"
        hints = ineffective_hints(observed.metadata, plan)
        return (
            f"{changes}; joins stay laid out by {', '.join(hints)} as before" if hints else changes
        )

    readable = checked(f"{where}: read", look)
    yield readable
    yield checked(f"{where}: write", write)
    if readable.status == "ok":
        yield checked(f"{where}: same plan", compare)


def of_brokers(settings: Settings) -> list[Check]:
    """Check that the brokers answer, for the settings of each client."""
    return [
        checked(
            "brokers" if name == "kafka" else f"brokers by {name}",
            functools.partial(_answer, its),
        )
        for name, its in clients_of(settings).items()
    ]


def _answer(settings: Mapping[str, str]) -> str:
    client.reach(settings)
    return f"{settings['bootstrap.servers']} answers"


def failing_as_check(
    what: str,
) -> Callable[[Callable[P, Iterator[Check]]], Callable[P, Iterator[Check]]]:
    """Turn an error in the middle of some checks into a failed check `what`."""

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


@failing_as_check("topics")
def of_topics(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Check inputs, outputs and the pipeline's own topics; the brokers have to answer.

    The topics are compared with the checkpoint if it can be read.
    """
    try:
        observed, is_readable = observed_at(Checkpoint(settings.checkpoint)), True
    except IkebanaError:
        observed, is_readable = None, False
    shards = settings.shards if observed is None else observed.metadata.shards
    read_back = _read_back(plan, observed)
    ours = Rights(plan, settings, shards, read_back)
    yield from _of_inputs(settings, observed, ours)
    bad = False
    for name in ours.written:
        if (lacking := ours.refused(name)) is not None:
            bad = True
            yield lacking
        elif isinstance(state := ours.state(name), TopicRights):
            may = "may be read and written" if ours.reads(name) else "may be written"
            yield _usable(f'topic "{name}"', state, may)
    yield from ours.of_missing()
    # Asking lets brokers create their topic of groups, so it is done only if they check rights.
    if broker_settings(settings.kafka).get(AUTHORIZER) != "":
        for check in ours.of_group():
            bad |= check.status != "ok"
            yield check
    if bad or not is_readable:
        why = "a right is missing" if is_readable else "the checkpoint could not be read"
        yield Check("what belongs together", "unknown", f"not looked at: {why}")
        return
    if observed is not None:
        yield from _of_reading_again(plan, settings, observed)
    yield from own_topics.contents_checks(settings.kafka, read_back, plan.error_topic)
    existing = {
        name: state.topic
        for name in ours.written
        if isinstance(state := ours.state(name), TopicRights)
    }
    yield _together(plan, settings, observed, existing)


def _read_back(plan: Plan, observed: Observed | None) -> list[str]:
    """List the topics of outputs that an edit to the plan retracts."""
    edit = None if observed is None else edit_to(observed.metadata, plan)
    return [] if edit is None else sorted(edit.read_back)


def _of_reading_again(plan: Plan, settings: Settings, observed: Observed) -> Iterator[Check]:
    """Check that the inputs that an edit reads again still have the records read first."""
    step = next_step(observed, Desired(plan, settings.shards))
    if isinstance(step, Refusal) or not step.following.backfills:
        return
    again = step.following.plan

    def look() -> str:
        refuse_lost(observed, again, settings.reading_kafka)
        return "their topics have all that was read first"

    names = " and ".join(f'"{shown(name)}"' for name in again.backfills)
    yield checked(f"inputs that are read again: {names}", look)


def _usable(what: str, state: TopicRights, may: str) -> Check:
    """Make the check of an existing topic without a missing right."""
    count = counted(state.topic.partitions, "partition")
    if state.allowed is None:
        words = f"{count}, the brokers do not tell what may be done with it"
        return Check(what, "unknown", words)
    return Check(what, "ok", f"{count}, {may}")


def of_registry(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Check that the schema registry answers, if it is needed, and takes the outputs' schemas."""
    writes = any(output.traits.in_registry for output in plan.outputs)
    if not writes and not any(map(needs_registry, plan.inputs)):
        return

    def look() -> str:
        Registry(settings.registry, _REGISTRY_S).reach()
        return "it answers"

    check = checked("schema registry", look)
    yield check
    if check.status == "ok":
        yield from own_topics.schema_checks(plan, settings)


def _of_inputs(settings: Settings, observed: Observed | None, ours: Rights) -> Iterator[Check]:
    admin = client.admin(settings.reading_kafka)
    read = None if observed is None else _read_so_far(settings, observed)
    for name in ours.inputs:
        what, state = f'input topic "{name}"', ours.state(name)
        if (lacking := ours.refused(name)) is not None:
            yield lacking
        elif not isinstance(state, TopicRights):
            gone = read is not None and name in read.positions
            yield _missing(what, inputs.similar_topic(admin, name), gone=gone)
        elif read is not None and read.topic_ids.get(name, state.topic.id) != state.topic.id:
            yield Check(
                what,
                "failed",
                "was deleted and created again: its offsets now name other records",
                "Start with a new checkpoint and new output topics.",
            )
        else:
            positions = {} if read is None else read.positions.get(name, {})
            yield _of_positions(what, admin, name, state, positions)


def _missing(what: str, near: str | None, *, gone: bool) -> Check:
    """Make the check of a missing input topic; `gone` if it has been read before."""
    meant = f'; did you mean "{near}"?' if near else ""
    remedy = "Create it, or correct its name in the pipeline file."
    if gone:
        return Check(what, "failed", f"does not exist{meant}", remedy)
    words = f"does not exist: a run waits for it, unless it is told --no-wait{meant}"
    return Check(what, "warning", words, remedy)


def _read_so_far(settings: Settings, observed: Observed) -> SourceOffset:
    """Read the offsets of the last batch that the checkpoint has committed."""
    metadata, committed = observed.metadata, observed.logged.committed
    if committed < metadata.first_batch:
        return metadata.start
    return (
        Checkpoint(settings.checkpoint).layout(metadata).offset(committed - metadata.first_batch)
    )


def _of_positions(
    what: str, admin: AdminClient, name: str, state: TopicRights, positions: Mapping[int, int]
) -> Check:
    """Check that the topic still has the next offsets to read."""
    begins = topics.beginnings(admin, {name: state.topic.partitions})[name]
    gone = [p for p, begin in begins.items() if begin > positions.get(p, begin)]
    if not gone:
        return _usable(what, state, "may be read")
    at = ", ".join(f"{name}[{p}]@{positions[p]}" for p in gone)
    return Check(
        what,
        "failed",
        f"{at} comes next, and is no longer there",
        "Raise the topic's retention. To go on without the lost records, start with a new "
        "checkpoint and new output topics.",
    )


def _together(
    plan: Plan,
    settings: Settings,
    observed: Observed | None,
    existing: Mapping[str, TopicInfo],
) -> Check:
    """Check that checkpoint, commit records and outputs belong to one history, as a start does."""
    what = "what belongs together"
    if observed is None and not existing:
        # Reading would need a consumer, which lets brokers create their topic of groups.
        return Check(what, "ok", _NEVER_RUN)
    if observed is None:
        nothing = SourceOffset(-1, 0, 0, {}, plan.fingerprint())
        metadata = metadata_of(settings.checkpoint, plan, settings.shards, nothing)
        logged = Logged(None, -1, -1)
    else:
        metadata, logged = observed.metadata, observed.logged
    plan = with_checkpoint_names(metadata, plan)

    def look() -> Logged:
        """Read the log's end now, with the commits from before the commit records were read."""
        if observed is None:
            return logged
        now = Checkpoint(settings.checkpoint).layout(metadata).logged()
        return replace(now, committed=logged.committed)

    try:
        with closing(KafkaBrokers(plan, settings)) as brokers:
            lease = history(plan, metadata, brokers, look).lease
    except IkebanaError as error:
        return refused(what, error)
    except KafkaException as error:
        return Check(what, "unknown", f"could not be read: {error.args[0].str()}")
    if lease is None:
        return Check(what, "ok", _NEVER_RUN)
    return Check(what, "ok", f"instance {lease.incarnation} was the last, by {lease.holder}")


# Brokers reveal the right to use a transactional id only when a client tries one.  The check
# tries an id that nobody holds, so it fences nobody; brokers remember the id for some days.  If
# the brokers check no rights, the check tries nothing.

_BATCH = "run.max_batch"
_IDS = f'transactional ids "{client.TRANSACTIONS}…"'
_LONGEST = "transaction.max.timeout.ms"


@failing_as_check("transactions")
def of_transactions(settings: Settings, checkpoint_id: str | None) -> Iterator[Check]:
    """Check the right to use transactions, and their time limit."""
    sink = settings.writing_kafka
    of_broker = broker_settings(sink)
    if (longest := of_broker.get(_LONGEST)) is not None:
        yield _of_timeout(settings.max_batch_s, longest)
    if of_broker.get(AUTHORIZER) == "":
        yield Check(_IDS, "ok", "the brokers check no rights")
        return
    lasting = Check(_BATCH, "ok", f"{settings.max_batch_s:.0f} s, the brokers allow it")
    try:
        transactional_producer(
            sink, transactions.trial_id(checkpoint_id or "new"), settings.max_batch_s
        )
    except AccessError as error:
        yield Check(_IDS, "failed", "may not be written", error.hint or "")
        return
    except ConfigError as error:
        # Brokers check the time limit after they have checked rights.
        lasting = refused(_BATCH, error)
    yield Check(_IDS, "ok", "may be written")
    if longest is None:
        yield lasting


def _of_timeout(max_batch_s: float, longest_ms: str) -> Check:
    """Check that the brokers' time limit for transactions is at least that of a batch."""
    longest_s = int(longest_ms) / 1000
    if longest_s < max_batch_s:
        return Check(
            _BATCH,
            "failed",
            f"is {max_batch_s:.0f} s, the brokers end transactions after {longest_s:.0f} s",
            f"Lower run.max_batch, or raise {_LONGEST} on the brokers.",
        )
    return Check(_BATCH, "ok", f"{max_batch_s:.0f} s, the brokers allow {longest_s:.0f} s")
