"""Check the rights that a pipeline needs on the brokers.

`run` checks before its query starts, and `preflight` before that; both report the missing rules
in the same words.  For an existing topic, brokers list our rights; for a topic that a start would
create, they only say whether we may create it; for a group, whether we may describe it.  The
checks change nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ikebana.errors import AccessError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.notices import Check
from ikebana.processor.base.offsets import TopicInfo, progress_topic
from ikebana.processor.base.texts import counted
from ikebana.processor.kafka import client, own_topics
from ikebana.processor.kafka.client import (
    REQUEST_S,
    Operations,
    grant,
    missing_right,
    ordered,
    patiently,
)
from ikebana.processor.kafka.reading_rights import FORBIDDEN, State, described, may_name_group
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import Plan

# The broker's setting that names its authorizer; empty: no rights are checked.
AUTHORIZER = "authorizer.class.name"
_KAFKA, _SOURCE, _SINK = "kafka", "source.kafka", "sink.kafka"


class Rights:
    """The rights on each topic that a pipeline's clients need and have; requested once.

    `read_back` are the topics of outputs that an edit reads.
    """

    def __init__(
        self, plan: Plan, settings: Settings, shards: int, read_back: Iterable[str] = ()
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._shards = shards
        self._clients = clients_of(settings)
        self._needs = _needs(plan, self._clients, read_back)
        self._seen: dict[str, dict[str, State]] = {}
        self.inputs = _inputs(plan)
        output_topics = [topic for o in plan.published for topic in (o.topic, o.progress_topic)]
        self.written = [*own_topics.by_shard(plan, shards), *output_topics]

    def state(self, topic: str) -> State:
        """Return a topic as its clients see it; if any client is refused, that error."""
        states = [self._described_by(name)[topic] for name in self._needs[topic]]
        return next((state for state in states if isinstance(state, KafkaError)), states[0])

    def refused(self, topic: str) -> Check | None:
        """Return the failed check of a topic with a missing right; None if none is missing."""
        reasons: list[str] = []
        remedies: list[str] = []
        for name, operations in self._needs[topic].items():
            state = self._described_by(name)[topic]
            if state is None:
                continue
            if isinstance(state, KafkaError):
                reasons.append(f"may not be seen: {state.str()}")
                remedies.append(self._grant(name, operations, "--topic", topic))
                continue
            needed = {AclOperation.DESCRIBE, *operations}
            if name == _KAFKA and self._has_to_grow(topic, state.topic):
                needed.add(AclOperation.ALTER)
            if state.allowed is not None and (lacking := needed - state.allowed):
                reasons += [missing_right(each) for each in ordered(lacking)]
                remedies.append(self._grant(name, lacking, "--topic", topic))
        what = f'input topic "{topic}"' if topic in self.inputs else f'topic "{topic}"'
        return _failed(what, reasons, remedies) if reasons else None

    def reads(self, topic: str) -> bool:
        """Return whether a topic that is written is also read."""
        return any(AclOperation.READ in needed for needed in self._needs[topic].values())

    def of_missing(self) -> Iterator[Check]:
        """Check that a start may create the missing topics, without creating them."""
        existing = {topic for topic in self.written if self.state(topic) is not None}
        if existing.issuperset(self.written):
            return
        if any(self.refused(topic) for topic in self.inputs):
            # An output gets the number of partitions of an input.
            yield Check("topics that are missing", "unknown", "an input topic is not told")
            return
        admin = client.admin(self._settings.kafka)
        missing = own_topics.missing(self._plan, self._settings, self._shards, existing)
        for name, partitions, creation_settings in missing:
            yield self._of_missing(admin, name, partitions, creation_settings)

    def of_group(self) -> Iterator[Check]:
        """Check that the clients that read may name their group."""
        for name in (_KAFKA, _SOURCE):
            if name not in self._clients:
                continue
            what = f'group "{client.GROUP}"' + (f" by {name}" if name != _KAFKA else "")
            if may_name_group(self._clients[name], what):
                yield Check(what, "ok", "may be seen")
            else:
                remedy = self._grant(name, {AclOperation.DESCRIBE}, "--group", client.GROUP)
                yield _failed(what, ["may not be seen"], [remedy])

    def _grant(self, name: str, operations: Operations, *resource: str) -> str:
        whom = "" if name == _KAFKA else f" to the client of {name}"
        return grant(self._clients[name], operations, *resource, whom=whom)

    def _described_by(self, name: str) -> dict[str, State]:
        if name not in self._seen:
            asked = [topic for topic, needed in self._needs.items() if name in needed]
            self._seen[name] = described(client.admin(self._clients[name]), asked)
        return self._seen[name]

    def _has_to_grow(self, topic: str, existing: TopicInfo) -> bool:
        by_shard = own_topics.by_shard(self._plan, self._shards)
        return topic in by_shard and existing.partitions < by_shard[topic]

    def _of_missing(
        self, admin: AdminClient, name: str, partitions: int, creation_settings: Mapping[str, str]
    ) -> Check:
        what, count = f'topic "{name}"', counted(partitions, "partition")
        replication = self._settings.replication_factor
        new = NewTopic(name, partitions, replication, config=dict(creation_settings))
        try:
            patiently(
                lambda: admin.create_topics([new], request_timeout=REQUEST_S, validate_only=True)[
                    name
                ].result(),
                what,
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                # It exists by now, but the broker that was asked does not know it yet.
                return Check(what, "ok", "is being made")
            settings = ", ".join(
                f"{key}={value}" for key, value in sorted(creation_settings.items())
            )
            remedy = (
                self._grant(_KAFKA, {AclOperation.CREATE}, "--topic", name)
                if error.args[0].code() in FORBIDDEN
                else "sink.replication_factor and sink.topics change what is asked for"
            )
            remedy += f". Or make it with {count} and {settings}."
            reason = f"does not exist and cannot be made: {error.args[0].str()}"
            return Check(what, "failed", reason, remedy)
        return Check(what, "ok", f"will be made, with {count}")


def broker_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Read the settings of one broker, as an example of all; empty if we may not see them."""
    admin = client.admin(settings)

    def ask() -> dict[str, str]:
        broker = next(iter(admin.list_topics(timeout=REQUEST_S).brokers))
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        answer = admin.describe_configs([resource], request_timeout=REQUEST_S)[resource]
        return {name: entry.value for name, entry in answer.result().items()}

    try:
        return patiently(ask, "the brokers")
    except KafkaException as error:
        if error.args[0].code() not in FORBIDDEN:
            raise
        return {}


def require_rights(
    plan: Plan, settings: Settings, shards: int, read_back: Iterable[str] = ()
) -> None:
    """Refuse to continue if a right is missing, or a topic cannot be created.

    Raises:
        AccessError: it lists all missing rights, with a remedy for each.
    """
    rights = Rights(plan, settings, shards, read_back)
    lacking = [check for topic in rights.inputs if (check := rights.refused(topic))]
    lacking += [check for topic in rights.written if (check := rights.refused(topic))]
    more = [*rights.of_missing(), *rights.of_group()]
    lacking += [check for check in more if check.status == "failed"]
    if lacking:
        raise AccessError(
            f"cannot start pipeline {plan.name!r}: "
            + "; ".join(f"{check.check} {check.fact}" for check in lacking),
            hint="\n".join(check.remedy for check in lacking),
        )


def clients_of(settings: Settings) -> dict[str, dict[str, str]]:
    """Return the clients with different settings, by the section of their settings."""
    clients = {_KAFKA: dict(settings.kafka)}
    for name, its in ((_SOURCE, settings.reading_kafka), (_SINK, settings.writing_kafka)):
        if its != clients[_KAFKA]:
            clients[name] = its
    return clients


def _failed(what: str, reasons: Iterable[str], remedies: Iterable[str]) -> Check:
    return Check(what, "failed", ", ".join(dict.fromkeys(reasons)), "\n".join(remedies))


def _inputs(plan: Plan) -> list[str]:
    """Return the topics that are read, except our own."""
    names = [topic for source in plan.inputs for topic in source.topics]
    names += [
        progress_topic(topic)
        for source in plan.inputs
        if source.traits.kind == "updates"
        for topic in source.topics
    ]
    return list(dict.fromkeys([*names, *plan.transaction_topics]))


def _needs(
    plan: Plan, clients: Mapping[str, object], read_back: Iterable[str]
) -> dict[str, dict[str, Operations]]:
    """Return the rights that each client needs on each topic; any of them needs Describe too."""
    needs: dict[str, dict[str, Operations]] = defaultdict(lambda: defaultdict(set))

    def need(name: str, topic: str, *operations: AclOperation) -> None:
        needs[topic][name if name in clients else _KAFKA].update(operations)

    for topic in _inputs(plan):
        need(_SOURCE, topic, AclOperation.READ)
    for output in plan.published:
        need(_SINK, output.topic, AclOperation.WRITE)
        # A compacted topic is refused, so its settings are read.
        need(_KAFKA, output.topic, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
        need(_SINK, output.progress_topic, AclOperation.WRITE)
        need(_KAFKA, output.progress_topic, AclOperation.READ)
    for topic in read_back:
        need(_KAFKA, topic, AclOperation.READ)
    need(_SINK, plan.commits_topic, AclOperation.WRITE)
    need(_KAFKA, plan.commits_topic, AclOperation.READ)
    # While no task runs, the source checks the commit records for a newer instance.
    need(_SOURCE, plan.commits_topic, AclOperation.READ)
    if progress.has_exchanges(plan):
        need(_SINK, plan.exchange_topic, AclOperation.WRITE)
        need(_SOURCE, plan.exchange_topic, AclOperation.READ)
        need(_KAFKA, plan.exchange_topic, AclOperation.DELETE)
    return needs
