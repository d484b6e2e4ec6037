"""Inputs with transactions that are aborted or open, and inputs with nothing in them."""

import pytest

from support.output_judge import committed
from support.pipeline_processes import PipelineOver, produce
from support.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def test_an_open_transaction_holds_its_partition_back_and_an_aborted_one_never_shows(
    pipeline_over: PipelineOver,
) -> None:
    """R6. The high watermark lies beyond the open transaction, what can be read does not.

    A source that logged the high watermark as read would skip the transaction's records
    once they are committed, and those behind them.  Other partitions are not held back,
    and the frontier moves on.
    """
    pipeline = pipeline_over(2, domain="ingest")
    servers, source = pipeline.servers, pipeline.source
    pipeline.send([(b"a", b"1")], 0)
    produce(servers, source, [(b"b", b"9")], 0, transaction=source + "-1").abort_transaction(30)
    waiting = produce(servers, source, [(b"c", b"5")], 0, transaction=source + "-2")
    pipeline.send([(b"d", b"2")], 0)
    pipeline.send([(b"e", b"3")], 1)

    def shown() -> set[bytes]:
        return {record.key() for record in committed(servers, pipeline.target)}

    with pipeline.start() as run:
        pipeline.wait_for_batch(3)
        assert shown() == {b"a", b"e"}
        # a, b and the end of b's transaction; c is at offset 3.
        assert pipeline.logged_positions(-1) == {f"{source}[0]": 3, f"{source}[1]": 1}
        waiting.commit_transaction(30)
        wait_until(lambda: shown() == {b"a", b"c", b"d", b"e"}, 30, "the held back records")
        pipeline.wait_until_read()
        assert run.stop() == 0, run.text
    assert pipeline.truth() == {b"a": b"1", b"c": b"5", b"d": b"2", b"e": b"3"}
    assert pipeline.judged() == {}


def test_without_records_the_frontier_moves_and_every_time_is_later_than_the_last(
    pipeline_over: PipelineOver,
) -> None:
    """Batches follow each other as quickly as they can, and still each has its own time."""
    pipeline = pipeline_over(1, domain="ingest").but(heartbeat="1ms")
    with pipeline.start() as run:
        pipeline.wait_for_batch(5)
        pipeline.send([(b"a", b"1")])
        pipeline.wait_until_read()
        pipeline.wait_for_batch(pipeline.progress()[-1].batch + 2)
        assert run.stop() == 0, run.text
    assert pipeline.truth() == {b"a": b"1"}
    assert pipeline.judged() == {}
    progress = pipeline.progress()
    assert [one.batch for one in progress] == list(range(len(progress)))
    assert sum(one.updates for one in progress) == 1
    uppers = [one.upper for one in progress]
    assert uppers == sorted(set(uppers))
