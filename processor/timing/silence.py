"""Which partitions have been silent for so long that their inputs do not wait for them.

An input that has all messages of its topics waits for a partition until it has had nothing
to read for `idle`.  One that has only some of them, since others read the topic too or
`tables` chooses, may well have a partition in which others' messages never end.  So it waits
until nothing of its own has been among all that came to the partition for `idle`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.planning.ways import shares_topics
from ikebana.processor.rows.rows import Seen
from ikebana.processor.timing.event_time import Where
from ikebana.processor.timing.input_times import Ends


class _Checked(NamedTuple):
    """A partition ended at `end` at a `moment`; all that came before `read` has been read."""

    end: int
    moment: float
    read: float | None


class Silence:
    """Remembers since when each partition has had nothing; moments are in seconds."""

    def __init__(self, plan: Plan) -> None:
        self._patient = [
            source
            for source in plan.inputs
            if source.event_time is not None and source.event_time.idle_ms is not None
        ]
        self._choosy = {
            source.name
            for source in self._patient
            if source.tables is not None or shares_topics(plan, source)
        }
        self._unchanged: dict[Where, tuple[int, float]] = {}
        self._checked: dict[Where, _Checked] = {}
        self._heard: dict[tuple[str, Where], float] = {}
        self._batch: int | None = None

    def learn(self, batch: int, seen: Iterable[Seen], moment: float) -> None:
        """Take what a batch has told of times, when it is first asked for."""
        if batch == self._batch:
            return
        self._batch = batch
        for one in seen:
            if one.greatest is not None:
                self._heard[one.input, (one.topic, one.partition)] = moment

    def idle(self, positions: Ends, ends: Ends, moment: float) -> dict[str, frozenset[Where]]:
        """By input the partitions that are not waited for.

        Topics end at `ends` at this moment, and have been read up to `positions`.
        """
        for where, end in _partitions(self._patient, ends):
            if where not in self._unchanged or self._unchanged[where][0] != end:
                self._unchanged[where] = end, moment
            at = _position(positions, where)
            self._checked[where] = _checked(self._checked.get(where), at, end, moment)
        return {
            source.name: frozenset(
                where
                for where, end in _partitions([source], ends)
                if self._is_idle(source, where, moment, read=_position(positions, where) >= end)
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


def _partitions(sources: Iterable[Input], ends: Ends) -> Iterator[tuple[Where, int]]:
    """The partitions of inputs, each once, and where they end."""
    for topic in dict.fromkeys(topic for source in sources for topic in source.topics):
        for partition, end in ends.get(topic, {}).items():
            yield (topic, partition), end


def _position(positions: Mapping[str, Mapping[int, int]], where: Where) -> int:
    topic, partition = where
    return positions.get(topic, {}).get(partition, 0)


def _checked(known: _Checked | None, position: int, end: int, moment: float) -> _Checked:
    if position >= end:
        return _Checked(end, moment, moment)
    if known is None:
        return _Checked(end, moment, None)
    # What came while the one before was being read is what is to be read now.
    return _Checked(end, moment, known.moment) if position >= known.end else known
