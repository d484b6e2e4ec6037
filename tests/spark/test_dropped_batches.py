"""Logged batches that no shard has committed, through Kafka and Spark: when they are dropped."""

from dataclasses import replace

import pytest

from support.pipeline_processes import WrittenOver, delete_before
from support.shops import assert_without_gaps, counted, messages, narrow, shown

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

ORDERS = {key: {"customer": key % 5, "amount": key} for key in range(300)}
ROWS = counted((key, {"a": key}) for key in ORDERS)


def test_an_edit_whose_topic_is_lost_meanwhile_is_withdrawn_by_the_file_of_before(
    written_over: WrittenOver,
) -> None:
    """It died in a batch that no shard has committed, and a start dies while it drops that."""
    pipeline = written_over("orders", limit=60)
    pipeline.send_to("orders", messages({key: ORDERS[key] for key in range(200)}))
    first = pipeline.having(narrow(pipeline.name, {"a": "amount"}))
    first.drained()
    wider = pipeline.having(narrow(pipeline.name, {"a": "amount", "c": "customer"}))
    run = wider.dies(f"before_commit:{max(first.log('offsets')) + 3}:*:all")
    assert 'reading "orders" again from the beginning' in run.text
    logged = max(first.log("offsets"))
    assert logged > max(first.log("commits"))
    delete_before(pipeline.servers, f"{pipeline.name}.orders", {0: -1, 1: -1})

    with wider.start("--once") as run:
        assert run.wait(120) != 0
    assert "the records before are gone" in run.text
    first.dies(f"before_dropped:{logged}:*:all")
    assert max(first.log("offsets")) == logged
    pipeline.send_to("orders", messages({key: ORDERS[key] for key in range(200, 300)}))
    end = first.drained()

    assert f"dropping batch {logged} of the plan of before" in end.text
    assert shown(pipeline, "slim") == ROWS
    assert_without_gaps(pipeline, "slim")


def test_a_batch_that_was_too_large_is_made_anew_by_a_lower_limit(
    written_over: WrittenOver,
) -> None:
    """With the limit that it had, it is run as it is in the log."""
    pipeline = written_over("orders", limit=1_000)
    pipeline.send_to("orders", messages(ORDERS))
    large = pipeline.having(narrow(pipeline.name, {"a": "amount"}))
    for at in ("first", "second"):
        once = replace(large, folder=large.folder / at)
        once.folder.mkdir()
        assert "dropping" not in once.dies("before_commit:0:*:all").text
    logged = max(large.log("offsets"))
    assert logged > max(large.log("commits"), default=-1)

    end = replace(large, limit=100).drained()

    assert f"dropping batch {logged} of 300 records, which is more than" in end.text
    assert len(large.log("commits")) >= logged + 3
    assert shown(pipeline, "slim") == ROWS
