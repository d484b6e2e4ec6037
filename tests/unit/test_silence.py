"""When a partition counts as silent: for all inputs alike, or for each that has a part of it."""

from dataclasses import replace

import pytest

from ikebana import EventTime, Input, Output, Plan, Upsert
from ikebana.processor.base.rows import TimesReport
from ikebana.processor.topics.event_time import Silence, Where

PATIENT = EventTime(clock="kafka", idle_ms=10_000)
A = Input("a", ("t",), event_time=PATIENT)
B = Input("b", ("t",), event_time=EventTime(clock="kafka", idle_ms=20_000))
NEVER = Input("never", ("t",), event_time=EventTime(clock="kafka", idle_ms=None))
CHOOSY = replace(A, value_format="maxwell", tables="shop.a")


class Clock:
    """Asks what is silent, second by second, in one partition or two."""

    def __init__(self, *inputs: Input) -> None:
        upserts = tuple(Upsert(f"{i.name}_now", i.name) for i in inputs)
        outputs = tuple(Output(i.name, f"{i.name}_now", f"{i.name}.out") for i in inputs)
        self.silence = Silence(Plan("p", inputs, upserts, outputs))
        self.batch = 0

    def idle(
        self,
        moment: float,
        read: dict[int, int],
        ends: dict[int, int] | None = None,
        heard: list[tuple[str, int]] | None = None,
    ) -> dict[str, list[int]]:
        """The silent partitions of each input; `heard` is what a further batch has had."""
        if heard is not None:
            self.batch += 1
        seen = [TimesReport(name, "t", partition, greatest=1) for name, partition in heard or ()]
        self.silence.learn(self.batch, seen, moment)
        found = self.silence.idle({"t": read}, {"t": read if ends is None else ends}, moment)
        return {name: _numbers(where) for name, where in found.items() if where}


def _numbers(where: frozenset[Where]) -> list[int]:
    return sorted(partition for _, partition in where)


def test_a_partition_of_one_input_is_idle_when_nothing_has_come_for_so_long() -> None:
    """Whatever it was that came last, and not while there is anything to read."""
    clock = Clock(A)

    assert clock.idle(0, {0: 5, 1: 5}) == {}
    assert clock.idle(9.9, {0: 5, 1: 6}) == {}
    assert clock.idle(10, {0: 5, 1: 6}) == {"a": [0]}
    assert clock.idle(19.8, {0: 5, 1: 6}, {0: 5, 1: 7}) == {"a": [0]}
    assert clock.idle(29.8, {0: 5, 1: 6}, {0: 5, 1: 7}) == {"a": [0]}
    assert clock.idle(29.9, {0: 5, 1: 7}) == {"a": [0, 1]}


def test_a_message_of_another_input_wakes_nobody() -> None:
    """Of a topic of two inputs, each has been silent since it was heard itself."""
    clock = Clock(A, B)

    assert clock.idle(0, {0: 1}, heard=[("a", 0), ("b", 0)]) == {}
    assert clock.idle(10, {0: 1}) == {"a": [0]}
    assert clock.idle(11, {0: 2}, heard=[("b", 0)]) == {"a": [0]}
    assert clock.idle(30, {0: 3}, heard=[("a", 0)]) == {}
    assert clock.idle(31, {0: 3}) == {"b": [0]}
    assert clock.idle(40, {0: 3}) == {"a": [0], "b": [0]}


@pytest.mark.parametrize("inputs", [(A, NEVER), (CHOOSY,)], ids=["of two inputs", "by tables"])
def test_others_messages_without_end_do_not_hold_an_input(inputs: tuple[Input, ...]) -> None:
    """There is always something left to read, and none of it was the input's for so long."""
    clock = Clock(*inputs)
    clock.idle(0, {0: 0}, {0: 10}, heard=[])
    for second in range(1, 11):
        told = clock.idle(second, {0: second * 10}, {0: second * 10 + 10}, heard=[])
        assert told == {}

    # What had come by second 10 has been read.
    assert clock.idle(11, {0: 110}, {0: 120}, heard=[]) == {"a": [0]}
    assert clock.idle(12, {0: 120}, {0: 130}, heard=[("a", 0)]) == {}


def test_a_backlog_may_have_what_an_input_waits_for() -> None:
    """Until all has been read that was there at the start, nothing is known of it."""
    clock = Clock(A, NEVER)

    assert clock.idle(0, {0: 0}, {0: 100}, heard=[]) == {}
    assert clock.idle(50, {0: 99}, {0: 200}, heard=[]) == {}
    assert clock.idle(60, {0: 100}, {0: 200}, heard=[]) == {}
    assert clock.idle(70, {0: 200}, {0: 300}, heard=[]) == {"a": [0]}


def test_a_batch_is_heard_once() -> None:
    """Between two batches the topics are looked at many times."""
    clock = Clock(A, NEVER)
    assert clock.idle(0, {0: 1}, heard=[("a", 0)]) == {}
    for moment in range(1, 10):
        clock.silence.learn(clock.batch, [TimesReport("a", "t", 0, greatest=1)], moment)

    assert clock.idle(10, {0: 1}) == {"a": [0]}


def test_an_input_that_is_never_idle_is_always_waited_for() -> None:
    """However long nothing comes."""
    clock = Clock(A, NEVER)

    assert clock.idle(0, {0: 1}) == {}
    assert clock.idle(1e6, {0: 1}) == {"a": [0]}
