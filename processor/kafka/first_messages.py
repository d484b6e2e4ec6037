"""Look at some messages of each input while a pipeline runs, for probable mistakes (notices).

The driver reads them beside the run, which does no work for this.  An input is looked at again,
at pauses that double, until it has had enough messages and there is no notice about them.  After
its first row its newest messages are looked at too, later once a minute, for new columns.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from confluent_kafka import KafkaException

from ikebana.errors import IkebanaError
from ikebana.processor.authoring.proposing.look import Look, look
from ikebana.processor.authoring.proposing.notices import new_columns, notices
from ikebana.processor.base.notices import Notice
from ikebana.processor.kafka import records
from ikebana.processor.kafka.progress_topic import last_progress
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.input_codec import needs_registry
from ikebana.processor.topics.kinds_of_time import kind_of, mixed, of_input
from ikebana.processor.topics.messages import Message

# An input with so many messages and without a notice is not looked at again.
_ENOUGH = 10
_AGAIN_S = 5.0
_LATEST_S = 60.0
_REGISTRY_S = 5.0
# How long the end of a run waits for a look that is under way.
_END_WITHIN_S = 10.0


class FirstMessages:
    """A thread that looks at the messages of a plan's inputs; `tell` gets its notices."""

    def __init__(
        self,
        plan: Plan,
        kafka: Mapping[str, str],
        registry: Mapping[str, str],
        tell: Callable[[Sequence[Notice]], None],
    ) -> None:
        self._plan = plan
        self._kafka = kafka
        self._registry = registry
        self._tell = tell
        self._notices: dict[str, list[Notice]] = {}
        # The names of the columns of the first rows, by input.  A start has declared all columns
        # of inputs that add them.
        self._had: dict[str, frozenset[str]] = {
            source.name: frozenset(column.name for column in source.columns)
            for source in plan.inputs
            if source.on_new_column == "add"
        }
        self._new: dict[str, Notice] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ikebana-look", daemon=True)

    def begin(self) -> None:
        """Start the thread, if it does not run yet."""
        if self._thread.ident is None:
            self._thread.start()

    def end(self, within_s: float = _END_WITHIN_S) -> None:
        """Stop the thread; a look that has begun, such as the first one, is finished."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        left, pause_s = list(self._plan.inputs), _AGAIN_S
        while left or self._had:
            for source in self._plan.inputs:
                if source.name in self._had:
                    self._look_for_new(source)
            left = [source for source in left if not self._is_done(source)]
            noticed = [notice for each in self._notices.values() for notice in each]
            self._tell([*noticed, *self._new.values(), *_of_times(self._plan, self._kafka)])
            if self._ends.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LATEST_S)

    def _is_done(self, source: Input) -> bool:
        """Look at an input; return whether it need not be looked at again."""
        try:
            messages, seen = looked_at(source, self._kafka, self._registry)
        except (IkebanaError, KafkaException):
            return False  # the run itself says what is wrong with the topic, if it lasts
        self._notices[source.name] = notices(self._plan, source, messages, seen)
        if source.columns and seen.rows:
            names = frozenset(name for row in seen.rows for name in row)
            self._had.setdefault(source.name, names)
        return seen.read >= _ENOUGH and not self._notices[source.name]

    def _look_for_new(self, source: Input) -> None:
        """Look for new columns in the newest messages of an input; their notice stays."""
        try:
            _, seen = looked_at(source, self._kafka, self._registry, records.newest)
        except (IkebanaError, KafkaException):
            return  # as above
        if (notice := new_columns(source, self._had[source.name], seen)) is not None:
            self._new[source.name] = notice


def _of_times(plan: Plan, kafka: Mapping[str, str]) -> list[Notice]:
    """Notice that the times of dated inputs are of different kinds.

    Where the plan determines the kinds, it was checked that they are equal
    (`planning.plan_problems`).
    """
    dated = [source for source in plan.inputs if source.is_dated]
    diffs = [source for source in dated if source.traits.kind == "updates"]
    if not diffs or len(dated) == 1:
        return []
    kinds = {source.name: of_input(source) for source in dated}
    try:
        with closing(RangeReader(kafka)) as reader:
            for source in diffs:
                last = last_progress(reader, source.topics[0] + ".progress")
                kinds[source.name] = None if last is None else kind_of(last.times, last.upper)
    except (IkebanaError, KafkaException):
        return []
    if (words := mixed(kinds)) is None:
        return []
    remedy = "no time of both is ever closed: join topics of pipelines with the same `time`"
    return [Notice("times", diffs[0].name, diffs[0].name, f"{words}; {remedy}")]


def looked_at(
    source: Input,
    kafka: Mapping[str, str],
    registry: Mapping[str, str],
    read: Callable[[Mapping[str, str], str], list[Message]] = records.some,
) -> tuple[list[Message], Look]:
    """Read messages of an input's topics, and look at them.

    Raises: IkebanaError, KafkaException: they cannot be read.
    """
    messages = [message for topic in source.topics for message in read(kafka, topic)]
    schemas = None
    if needs_registry(source) and registry:
        # Its client takes a while to import, and few need it.
        from ikebana.processor.kafka.registry import Registry

        schemas = Registry(dict(registry), _REGISTRY_S)
    return messages, look(source, messages, schemas)
