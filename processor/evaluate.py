"""The in-process shell: a plan on literal records, in milliseconds, without a JVM.

It runs the same kernels as the Spark shell.  Use it in tests, to learn, and to try a
pipeline before it meets a topic.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ikebana.arrangements.errors import ConfigError
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Update, consolidate
from ikebana.codecs import canonical
from ikebana.codecs.plain import decode_error, decode_part
from ikebana.processor import progress
from ikebana.processor.dataflow import Emitted, advance
from ikebana.processor.plan import ERRORS, Input, Output, Plan
from ikebana.processor.rows import Errors, Symbols

Record = tuple[Any, Any, int]


class Evaluation:
    """A plan between two micro-batches: give it records, take the updates."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.store = MemoryStore()
        self.frontiers: dict[str, int] = {}
        self._offset = 0
        self._refused: list[tuple[int, bytes]] = []

    def advance(
        self, inputs: Mapping[str, Iterable[Record]], upper: int
    ) -> dict[str, list[Update[Any]]]:
        """Feed records and close all times before `upper`; see `evaluate`.

        Records at or beyond `upper` wait until a later call closes their time.
        """
        known = {source.name: source for source in self.plan.inputs}
        if strange := [name for name in inputs if name not in known]:
            raise ConfigError(
                f'cannot evaluate plan "{self.plan.name}": it has no input "{strange[0]}"',
                hint=f"There are {', '.join(known)}.",
            )
        rows: list[Symbols | Errors] = [
            self._symbols(known[name], list(records)) for name, records in inputs.items()
        ]
        frontiers = progress.advance_frontiers(progress.edges(self.plan), self.frontiers, upper)
        rows.append(self._due_errors(min(frontiers.values())))
        emitted = advance(
            self.plan, self.store, rows, progress.intervals(self.frontiers, frontiers)
        )
        self.frontiers = frontiers
        return {output.name: self._read(output, emitted) for output in self.plan.published}

    def _symbols(self, source: Input, records: list[Record]) -> Symbols:
        """The usable records; error records of the others are kept until their time."""
        symbols = Symbols(source.name, self.plan.inputs.index(source), 0, [], [], [], [])
        assert isinstance(symbols.times, list)
        lower = min(self.frontiers.values(), default=0)
        for key, value, time in records:
            self._offset += 1
            raw_key = _as_message(key, source.key_format)
            raw_value = _as_message(value, source.value_format)
            place = (source.topics[0], 0, self._offset)
            good_key, reason = decode_part("key", source.key_format, raw_key)
            if reason is not None or good_key is None:
                assert time >= lower, f"time {time} is not beyond the lower {lower}"
                reason = reason or "the key is null"
                self._refused.append((time, decode_error(reason, place, raw_key, raw_value)))
                continue
            good_value, reason = decode_part("value", source.value_format, raw_value)
            if reason is not None:
                record = decode_error(reason, place, raw_key, raw_value)
                symbols.bad[len(symbols.keys)] = record
            symbols.keys.append(good_key)
            symbols.values.append(good_value)
            symbols.offsets.append(self._offset)
            symbols.times.append(time)
        return symbols

    def _due_errors(self, upper: int) -> Errors:
        due = [(time, record) for time, record in self._refused if time < upper]
        self._refused = [(time, record) for time, record in self._refused if time >= upper]
        return Errors([record for _, record in due], [time for time, _ in due])

    def _read(self, output: Output, emitted: Emitted) -> list[Update[Any]]:
        """The consolidated updates with data as Python values again."""
        if output.name == ERRORS:
            return [
                update._replace(data=canonical.decode(update.data))
                for update in consolidate(
                    Update(value, time, diff) for _, value, time, diff in emitted[ERRORS]
                )
            ]
        operator = next(o for o in self.plan.operators if o.name == output.source)
        source = self.plan.input(operator.input)
        return [
            Update(
                (_as_data(key, source.key_format), _as_data(value, source.value_format)),
                time,
                diff,
            )
            for (key, value), time, diff in consolidate(
                Update((key, value), time, diff) for key, value, time, diff in emitted[output.name]
            )
        ]


def evaluate(
    plan: Plan, inputs: Mapping[str, Iterable[Record]], upper: int | None = None
) -> dict[str, list[Update[Any]]]:
    """Run `plan` on the records `(key, value, time)` of each input.

    A value of None is a tombstone.  Of several records with one key and time the last
    one counts.  Keys and values are JSON data, or bytes where the input's format says
    so; the updates' data are pairs (key, value) of the same kind, consolidated and in
    order of time, by the name of the output; `errors` holds what could not be used.
    All times are closed, or those before `upper` if it is given.

    >>> from ikebana import Input, Output, Plan, Upsert
    >>> plan = Plan(
    ...     "names",
    ...     inputs=(Input("names", ("names",)),),
    ...     operators=(Upsert("current", "names"),),
    ...     outputs=(Output("diffs", "current", "diffs"),),
    ... )
    >>> found = evaluate(plan, {"names": [("frank", "mcsherry", 0), ("frank", "zappa", 1)]})
    >>> for update in found["diffs"]:
    ...     print(*update)
    ('frank', 'mcsherry') 0 1
    ('frank', 'mcsherry') 1 -1
    ('frank', 'zappa') 1 1
    """
    records = {name: list(given) for name, given in inputs.items()}
    if upper is None:
        upper = 1 + max((time for given in records.values() for _, _, time in given), default=0)
    return Evaluation(plan).advance(records, upper)


def _as_message(data: Any, data_format: str) -> bytes | None:
    if data is None:
        return None
    if isinstance(data, bytes):
        return data
    return canonical.encode(data) if data_format == "json" else bytes(data)


def _as_data(message: bytes | None, data_format: str) -> Any:
    if message is None or data_format == "bytes":
        return message
    return canonical.decode(message)
