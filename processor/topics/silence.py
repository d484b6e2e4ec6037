"""Find idle partitions: they had no records for so long that their inputs stop waiting for them.


If an input uses all messages of its topics, a partition is idle when it has had nothing to read
for `idle`.  If it uses only some of them, because other inputs read the topic too or `tables`
selects, other messages may come all the time.  Then a partition is idle when, for `idle`, no
message that arrived in it belonged to the input.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ikebana.processor.base.offsets import Offsets, offset_in
from ikebana.processor.base.rows import Seen
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.event_time import Where


class _Checked(NamedTuple):
    """The end of a partition at a `moment`; all that arrived before `read` has been read."""

    end: int
    moment: float
    read: float | None


class Silence:
    """Remembers since when each partition has been without records; moments are in seconds."""

    def __init__(self, plan: Plan) -> None:
        self._patient = [
            source
            for source in plan.inputs
            if source.event_time is not None and source.event_time.idle_ms is not None
        ]
        self._choosy = {
            source.name
            for source in self._patient
            if source.tables is not None or plan.shares_topics(source)
        }
        self._unchanged: dict[Where, tuple[int, float]] = {}
        self._checked: dict[Where, _Checked] = {}
        self._heard: dict[tuple[str, Where], float] = {}
        self._batch: int | None = None

    def learn(self, batch: int, seen: Iterable[Seen], moment: float) -> None:
        """Take the reports of a batch on times; a repeated call for the batch does nothing."""
        if batch == self._batch:
            return
        self._batch = batch
        for one in seen:
            if one.greatest is not None:
                self._heard[one.input, (one.topic, one.partition)] = moment

    def idle(
        self, positions: Offsets, ends: Offsets, moment: float
    ) -> dict[str, frozenset[Where]]:
        """Find the idle partitions of each input.

        Topics end at `ends` at this moment, and have been read up to `positions`.
        """
        for where, end in _partitions(self._patient, ends):
            if where not in self._unchanged or self._unchanged[where][0] != end:
                self._unchanged[where] = end, moment
            at = offset_in(*where, positions)
            self._checked[where] = _checked(self._checked.get(where), at, end, moment)
        return {
            source.name: frozenset(
                where
                for where, end in _partitions([source], ends)
                if self._is_idle(source, where, moment, read=offset_in(*where, positions) >= end)
            )
            for source in self._patient
        }

    def _is_idle(self, source: Input, where: Where, moment: float, *, read: bool) -> bool:
        event = source.event_time
        assert event is not None
        assert event.idle_ms is not None
        until: float | None
        if source.name in self._choosy:
            since = self._heard.setdefault((source.name, where), moment)
            until = self._checked[where].read
        else:
            since = self._unchanged[where][1]
            until = moment if read else None
        return until is not None and (until - since) * 1000 >= event.idle_ms


def _partitions(sources: Iterable[Input], ends: Offsets) -> Iterator[tuple[Where, int]]:
    """Yield each partition of the inputs once, with its end."""
    for topic in dict.fromkeys(topic for source in sources for topic in source.topics):
        for partition, end in ends.get(topic, {}).items():
            yield (topic, partition), end


def _checked(before: _Checked | None, position: int, end: int, moment: float) -> _Checked:
    if position >= end:
        return _Checked(end, moment, moment)
    if before is None:
        return _Checked(end, moment, None)
    # All up to the earlier end has been read, so all that arrived before its moment.
    return _Checked(end, moment, before.moment) if position >= before.end else before
