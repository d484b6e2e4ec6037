"""What a run says of its batches."""

import pytest

from ikebana import Input, Output, Plan, Upsert
from ikebana.processor.cli.batches import BatchDisplay
from ikebana.processor.spark.query import BatchReport

PLAN = Plan(
    "p",
    inputs=(Input("i", ("in",)),),
    operators=(Upsert("o", "i"),),
    outputs=(Output("d", "o", "out"),),
)


def test_what_was_counted_is_summed_up_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Late records are not said to be ignored, for they count."""
    with BatchDisplay(PLAN, once=True) as display:
        for counted in ({"late": 3}, {"late": 4, "heartbeat": 1, "drift": 2}):
            counts = {"d": 5, "errors": 0}
            display.batch(BatchReport(0, 0, 1, 10, 0, counts, counted, 0, 0.1, []))
        display.done(stopped=False)

    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        "p: caught up after 2 batches, 20 records, 10 updates; 2 old images unlike the state, "
        "1 heartbeat messages ignored, 7 late records that count at the frontier, frontier 1"
    )
