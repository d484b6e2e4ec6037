"""Checks of transactions before a start: how long they may last, who may begin them.

Whether we may write a transactional id the brokers tell only by their rules, and those
only to who may see rules: to all others it is as if there were none.
"""

from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from ikebana.processor.configuring.settings import Settings
from ikebana.processor.kafka import client, markers
from ikebana.processor.kafka.client import patiently
from ikebana.processor.kafka.preflight import FORBIDDEN, told_whole
from ikebana.processor.preflight import Check

_REQUEST_S = 10.0
# Settings of brokers.
_LONGEST = "transaction.max.timeout.ms"
_AUTHORIZER = "authorizer.class.name"


@told_whole("transactions")
def of_transactions(settings: Settings, checkpoint_id: str | None) -> Iterator[Check]:
    """How long transactions may last, and who may begin them."""
    admin = client.admin({**settings.kafka, **settings.sink_kafka})
    told = _broker_settings(admin)
    yield _of_timeout(settings.max_batch_s, told.get(_LONGEST))
    # One that is new will get an id of its own.
    prefix = f"ikebana-{checkpoint_id or ''}"
    what = f'transactional ids "{prefix}…"'
    remedy = f'Grant Write and Describe on transactional ids that begin with "{prefix}".'
    if told.get(_AUTHORIZER) == "":
        yield Check(what, "ok", "the brokers check no rights")
        return
    asked = AclBindingFilter(
        ResourceType.TRANSACTIONAL_ID,
        markers.driver_id(checkpoint_id or "new"),
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    bindings = patiently(lambda: admin.describe_acls(asked).result(_REQUEST_S), "the brokers")
    user = settings.sink_kafka.get("sasl.username", settings.kafka.get("sasl.username"))
    yield _judged(what, bindings, {"User:*", f"User:{user}"} if user else {"User:*"}, remedy)


def _broker_settings(admin: AdminClient) -> dict[str, str]:
    """The settings of one broker, which stands for all; empty if they are not told us."""

    def ask() -> dict[str, str]:
        broker = next(iter(admin.list_topics(timeout=_REQUEST_S).brokers))
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        answer = admin.describe_configs([resource], request_timeout=_REQUEST_S)[resource]
        return {name: entry.value for name, entry in answer.result().items()}

    try:
        return patiently(ask, "the brokers")
    except KafkaException as error:
        if error.args[0].code() not in FORBIDDEN:
            raise
        return {}


def _of_timeout(max_batch_s: float, longest_ms: str | None) -> Check:
    """Whether the brokers let a transaction last as long as a batch may."""
    what = "run.max_batch"
    if longest_ms is None:
        return Check(
            what,
            "unknown",
            f"the brokers do not tell {_LONGEST}",
            f"It must be {max_batch_s * 1000:.0f} or more.",
        )
    longest_s = int(longest_ms) / 1000
    if longest_s < max_batch_s:
        return Check(
            what,
            "failed",
            f"is {max_batch_s:.0f} s, the brokers end transactions after {longest_s:.0f} s",
            f"Lower run.max_batch, or raise {_LONGEST} on the brokers.",
        )
    return Check(what, "ok", f"{max_batch_s:.0f} s, the brokers allow {longest_s:.0f} s")


def _judged(what: str, bindings: Iterable[AclBinding], principals: set[str], remedy: str) -> Check:
    """What rules on transactional ids say of us; groups and super users they do not."""
    writing = [
        binding
        for binding in bindings
        if binding.operation in (AclOperation.WRITE, AclOperation.ALL)
        and binding.principal in principals
    ]
    if any(binding.permission_type == AclPermissionType.DENY for binding in writing):
        return Check(what, "failed", "writing is denied by a rule", remedy)
    if writing:
        return Check(what, "ok", f"granted to {writing[0].principal}")
    return Check(what, "unknown", "the brokers tell of no rule for us", remedy)
