"""Check transactions before a start: their time limit, and the right to use them.

Brokers reveal the right to use a transactional id only when a client tries one.  The check
tries an id that nobody holds, so it fences nobody; brokers remember the id for some days.  If
the brokers check no rights, the check tries nothing.
"""

from collections.abc import Iterator

from ikebana.errors import AccessError, ConfigError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.check import Check, refused
from ikebana.processor.kafka import client, markers
from ikebana.processor.kafka.client import transactional_producer
from ikebana.processor.kafka.preflight import told_whole
from ikebana.processor.kafka.rights import AUTHORIZER, broker_settings

_BATCH = "run.max_batch"
_IDS = f'transactional ids "{client.TRANSACTIONS}…"'
_LONGEST = "transaction.max.timeout.ms"


@told_whole("transactions")
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
            sink, markers.trial_id(checkpoint_id or "new"), settings.max_batch_s
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
