"""The event times of rows, by the column that says them."""

from ikebana.codecs.change import Column
from ikebana.processor.planning.input_rows import dating_query
from ikebana.processor.planning.plan import EventTime, Input
from ikebana.processor.topics.event_time import EventTimes, TimeBounds

INPUT = Input(
    "orders",
    ("orders",),
    "json",
    columns=(Column("id", "BIGINT"), Column("ms", "BIGINT")),
    event_time=EventTime(of="ms"),
)
NULL = "event time is null"


def test_a_row_without_a_time_never_takes_that_of_its_message() -> None:
    """Whether or not there are tombstones beside it, which do."""
    times = EventTimes(dating_query(INPUT))
    rows = [b'{"id":1,"ms":20}', b'{"id":2,"ms":null}', b'{"id":3}', b'{"id":4,"ms":30}']
    keys: list[bytes | None] = [b"%d" % at for at in range(1, 5)]

    found = times.of_rows(keys, rows, [100] * 4, [TimeBounds(0, None)] * 4)
    beside = times.of_rows([*keys, b"5"], [*rows, None], [100] * 5, [TimeBounds(0, None)] * 5)

    assert found.times == [20, NULL, NULL, 30]
    assert beside.times == [20, NULL, NULL, 30, 100]
    assert (found.greatest, beside.greatest) == (30, 30)
