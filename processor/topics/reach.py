"""The frontier of a batch, computed from all inputs with times of their own.

It is the least of their frontiers.  An input is silent if all of its partitions are idle; a
silent input does not count as long as another input is not silent.  When all are silent,
everything that has been read is closed: the frontier lies just beyond the greatest time seen.

A collection that is closed for ever does not count either, and does not make others wait.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from ikebana.processor.base.offsets import Offsets
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import diff_input
from ikebana.processor.topics.diff_input import ClosedProgress
from ikebana.processor.topics.input_times import InputTimes, key_of

LAST_TIME = (1 << 63) - 1


class InputsState(msgspec.Struct, frozen=True):
    """The state of the inputs when times before `upper` are closed, for metrics and the display.

    * `frontiers`: the frontiers of inputs; that of a silent input is just beyond the greatest
      time seen, and one without any time is absent.
    * `silent`: the silent inputs.
    * `held_by`: the inputs that hold the frontier back.
    * `ahead`: whether times were seen that are not closed yet.
    """

    upper: int
    frontiers: dict[str, int]
    silent: list[str]
    held_by: list[str]
    ahead: bool


class InputFrontiers(NamedTuple):
    """The frontiers of the inputs with times of their own, by name.

    `awaited` has the frontiers of inputs that are not silent, `silent` the greatest time of each
    silent one, None if it never had any.  `greatest` is the greatest time of all inputs.
    """

    awaited: dict[str, int]
    silent: dict[str, int | None]
    greatest: int | None

    @property
    def all_silent(self) -> bool:
        """Whether all inputs that are not closed for ever are silent."""
        return bool(self.silent) and not self._open

    @property
    def is_over(self) -> bool:
        """Whether all inputs are closed for ever."""
        return not self.silent and not self._open

    @property
    def upper(self) -> int:
        """The frontier: times before it are closed."""
        if not self.all_silent:
            return min([*self.awaited.values(), LAST_TIME])
        seen = [time for time in self.silent.values() if time is not None]
        return min(max(seen, default=-1) + 1, LAST_TIME)

    @property
    def held_by(self) -> list[str]:
        """The inputs with the least frontier, which hold back the batch's."""
        least = min(self._open, default=None)
        return [name for name, at in self.awaited.items() if at == least]

    def standing(self, upper: int) -> InputsState:
        """Describe this for people, in a pipeline that has closed all times before `upper`."""
        behind = {name: at + 1 for name, at in self.silent.items() if at is not None}
        return InputsState(
            upper,
            {name: min(at, LAST_TIME) for name, at in self.awaited.items()} | behind,
            sorted(self.silent),
            self.held_by,
            self.greatest is not None and self.greatest >= upper,
        )

    @property
    def _open(self) -> list[int]:
        return [at for at in self.awaited.values() if at < LAST_TIME]


def reach(
    plan: Plan,
    knowledge: Mapping[str, InputTimes],
    closed: Mapping[str, Sequence[ClosedProgress]],
    positions: Offsets,
    lower: int,
    limit: int | None,
) -> InputFrontiers:
    """Compute the reach of a batch that begins at `lower` and reads about `limit` records."""
    awaited: dict[str, int] = {}
    silent: dict[str, int | None] = {}
    greatest: list[int] = []
    for source in plan.inputs:
        if source.traits.kind == "updates":
            (topic,) = source.topics
            positions_of_topic = positions.get(topic, {})
            records = closed.get(source.name, ())
            awaited[source.name] = diff_input.reach(records, positions_of_topic, lower, limit)
        elif source.is_dated and source.name not in plan.backfills:
            times = knowledge.get(key_of(source), InputTimes())
            seen = [time for by in times.greatest.values() for time in by.values()]
            greatest += seen
            if times.idle:
                silent[source.name] = max(seen, default=None)
            else:
                awaited[source.name] = times.frontier
    return InputFrontiers(awaited, silent, max(greatest, default=None))
