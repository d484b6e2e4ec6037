"""Checks of transactions before a start: how long they may last, who may have them.

Who may have them the brokers tell only to who tries.  A transactional id is tried that nobody
holds, so nobody is fenced; brokers remember it for some days.  Where they check no rights,
nothing is tried.
"""

from collections.abc import Iterator

from ikebana.errors import AccessError, ConfigError
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.ground.check import Check, refused
from ikebana.processor.kafka import client, markers
from ikebana.processor.kafka.client import transactional_producer
from ikebana.processor.kafka.preflight import told_whole
from ikebana.processor.kafka.rights import AUTHORIZER, broker_settings

_BATCH = "run.max_batch"
_IDS = f'transactional ids "{client.TRANSACTIONS}…"'
_LONGEST = "transaction.max.timeout.ms"


@told_whole("transactions")
def of_transactions(settings: Settings, checkpoint_id: str | None) -> Iterator[Check]:
    """Who may have transactions, and how long these may last."""
    sink = {**settings.kafka, **settings.sink_kafka}
    told = broker_settings(sink)
    if (longest := told.get(_LONGEST)) is not None:
        yield _of_timeout(settings.max_batch_s, longest)
    if told.get(AUTHORIZER) == "":
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
        # Brokers look at this after they have looked at rights.
        lasting = refused(_BATCH, error)
    yield Check(_IDS, "ok", "may be written")
    if longest is None:
        yield lasting


def _of_timeout(max_batch_s: float, longest_ms: str) -> Check:
    """Whether the brokers let a transaction last as long as a batch may."""
    longest_s = int(longest_ms) / 1000
    if longest_s < max_batch_s:
        return Check(
            _BATCH,
            "failed",
            f"is {max_batch_s:.0f} s, the brokers end transactions after {longest_s:.0f} s",
            f"Lower run.max_batch, or raise {_LONGEST} on the brokers.",
        )
    return Check(_BATCH, "ok", f"{max_batch_s:.0f} s, the brokers allow {longest_s:.0f} s")
