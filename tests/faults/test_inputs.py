"""Inputs with transactions that are aborted or open, and inputs with nothing in them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ikebana.processor.kafka.broker import Broker
from support.output_judge import committed, judge, truth_of
from support.pipeline_processes import Pipeline, create, produce
from support.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def test_an_open_transaction_holds_its_partition_back_and_an_aborted_one_never_shows(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """R6. The high watermark lies beyond the open transaction, what can be read does not.

    A source that logged the high watermark as read would skip the transaction's records
    once they are committed, and those behind them.  Other partitions are not held back,
    and the frontier moves on.
    """
    servers, source = broker.bootstrap_servers, topic_name("open")
    create(servers, source, 2)
    produce(servers, source, [(b"a", b"1")], 0)
    produce(servers, source, [(b"b", b"9")], 0, transaction=source + "-1").abort_transaction(30)
    waiting = produce(servers, source, [(b"c", b"5")], 0, transaction=source + "-2")
    produce(servers, source, [(b"d", b"2")], 0)
    produce(servers, source, [(b"e", b"3")], 1)
    pipeline = Pipeline(tmp_path, servers, topic_name("held"), source, "ingest")

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
    truth = truth_of(servers, source)
    assert truth == {b"a": b"1", b"c": b"5", b"d": b"2", b"e": b"3"}
    assert judge(servers, pipeline.target, truth) == {}


def test_without_records_the_frontier_moves_and_every_time_is_later_than_the_last(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Batches follow each other as quickly as they can, and still each has its own time."""
    servers, source = broker.bootstrap_servers, topic_name("quiet")
    create(servers, source, 1)
    pipeline = Pipeline(tmp_path, servers, topic_name("beats"), source, "ingest")
    pipeline = pipeline.but(heartbeat="1ms")
    with pipeline.start() as run:
        pipeline.wait_for_batch(5)
        produce(servers, source, [(b"a", b"1")])
        pipeline.wait_until_read()
        pipeline.wait_for_batch(pipeline.progress()[-1].batch + 2)
        assert run.stop() == 0, run.text
    assert judge(servers, pipeline.target, {b"a": b"1"}) == {}
    progress = pipeline.progress()
    assert [one.batch for one in progress] == list(range(len(progress)))
    assert sum(one.updates for one in progress) == 1
    uppers = [one.upper for one in progress]
    assert uppers == sorted(set(uppers))
