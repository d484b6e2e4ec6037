"""A pipeline that runs over topics in memory: micro-batches, deaths, restarts, shards."""

from collections import Counter
from collections.abc import Collection, Set
from typing import Any

from ikebana.arrangements.update import Collection as Counted
from ikebana.arrangements.update import Update
from ikebana.codecs.upsert_out import OutputMessage
from ikebana.errors import ConfigError
from ikebana.processor.base.offsets import Offsets
from ikebana.processor.engine.in_process import HasPlan, consolidated, plan_of
from ikebana.processor.engine.testing.batches import Batches, BatchRequest
from ikebana.processor.planning.plan import ERRORS, Output, Plan
from ikebana.processor.topics.event_time import Where
from ikebana.processor.topics.literals import as_message


class Run(Batches):
    """A run of a pipeline over topics in memory, one micro-batch at a time.

    `send` appends messages to its topics; `batch` runs one micro-batch, and `read` runs
    batches until nothing is left to do.  Read the results with `updates`, `collection`,
    `messages` and `errors`.  `crash` runs a batch in a process that dies, `restart` continues
    as a new process, with a changed pipeline where a checkpoint allows it, or, as
    `restart(shards=…)`, with another number of shards.

    >>> from ikebana import Pipeline
    >>> shop = Pipeline("shop")
    >>> _ = shop.topic("orders").upsert().to("latest")
    >>> run = Run(shop, shards=2)
    >>> run.send("orders", 1, {"product": "tea"})
    >>> run.read()
    >>> run.collection("latest")
    [(1, {'product': 'tea'})]

    No clock is read: pass `now_ms` where the time of day counts.  Without it, batches in
    ingest time have the times 0, 1, 2 and so on, and no event time is too far ahead.  A batch
    takes at most `exchange` packed messages that come from other shards.
    """

    def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        *,
        partition: int = 0,
        timestamp: int | None = None,
    ) -> None:
        """Append a message to a topic that the pipeline reads; see `Topics.send`.

        Raises:
            ConfigError: the pipeline does not read the topic, or the message does not have
                the topic's format.
        """
        sources = [source for source in self.plan.inputs if topic in source.topics]
        if not sources and topic not in self.plan.transaction_topics:
            raise ConfigError(
                f'pipeline "{self.plan.name}" does not read topic "{topic}"',
                hint=f"It reads {', '.join(dict.fromkeys(self.plan.topics))}.",
            )
        for source in sources:
            where = f'a message of topic "{topic}"'
            key = as_message(source, "key", key, where)
            value = as_message(source, "value", value, where)
        self.topics.send(topic, key, value, partition=partition, timestamp=timestamp)

    def batch(
        self,
        now_ms: int | None = None,
        *,
        heartbeat: bool = False,
        first: bool = False,
        limit: int | None = None,
        ends: Offsets | None = None,
        idle: Set[Where] = frozenset(),
    ) -> bool:
        """Run the next micro-batch; return False if there is nothing to do.

        The batch reads about `limit` records at most, and up to `ends`, offsets by topic and
        partition.  Partitions (topic, number) in `idle` count as idle and do not hold the
        frontier back.  A `heartbeat` batch advances the time without records; `first` is the
        batch that Spark runs at a start.  If a `crash` has left a batch unfinished, this
        finishes that batch.  After a `restart` with a changed pipeline the first batches finish
        the work of the old pipeline, and read nothing.

        Raises:
            CheckpointError: a replayed batch gives other updates than before.
            RecordError: a record cannot be used, and the pipeline's policy is to fail.
        """
        unfinished = self._logged(BatchRequest(now_ms, limit, ends or {}, idle, heartbeat, first))
        if unfinished is None:
            return False
        self._finish(unfinished)
        return True

    def crash(
        self,
        now_ms: int | None = None,
        *,
        committed: Collection[int] = (),
        limit: int | None = None,
    ) -> bool:
        """Run the next micro-batch in a process that dies; return False if there is none.

        Every shard computes the batch, and the shards in `committed` commit it.  The next
        call of `batch` replays it in the others, and raises an error if they compute other
        updates than before: then the pipeline depends on more than its records.
        """
        unfinished = self._logged(BatchRequest(now_ms, limit))
        if unfinished is None:
            return False
        self._attempt(unfinished)
        for shard in committed:
            unfinished.commit(shard, self.stores[shard])
        return True

    def read(self, now_ms: int | None = None, *, limit: int | None = None) -> None:
        """Run micro-batches until there is nothing to do."""
        while self.batch(now_ms, limit=limit):
            pass

    def restart(
        self, pipeline: Plan | HasPlan | None = None, *, shards: int | None = None
    ) -> None:
        """Continue as a new process, with a changed pipeline or number of shards if given.

        If work is unfinished, the next batches first finish it under the old pipeline, with the
        old number of shards.

        Raises:
            CheckpointError: a checkpoint does not allow the change; it names every reason.
        """
        if pipeline is not None or shards is not None:
            self._edit(
                self._written if pipeline is None else plan_of(pipeline),
                len(self.stores) if shards is None else shards,
            )
        self._open()

    def recover(self, pipeline: Plan | HasPlan | None = None) -> None:
        """Lose the checkpoint, and go on as after `ikebana recover`, or as another pipeline.

        The next batches rebuild the state, and write the missing updates to the outputs.

        Raises:
            CheckpointError: the contents of outputs cannot be retracted, as in `ikebana recover`.
        """
        self._lose(self._written if pipeline is None else plan_of(pipeline))
        self._open()

    def updates(self, output: str) -> list[Update[Any]]:
        """The updates of an output so far: `((key, value), time, diff)`, consolidated.

        They are in order of time, with keys and values as Python data.  The data of the
        output `errors` are error records.

        Raises:
            ConfigError: the pipeline has no such output.
        """
        target = self._output(output)
        return consolidated(self.plan, target, self.written.updates[target.name])

    def collection(self, output: str, as_of: int | None = None) -> list[Any]:
        """The pairs (key, value) of an output as of a time, by default the last.

        A pair whose count is 2 is in the list twice.  They are in the order of arrival.

        Raises:
            ConfigError: the pipeline has no such output, or a count is negative, as it may
                be in the difference of two collections.
        """
        rows = Counted(
            (data, change)
            for data, time, change in self.updates(output)
            if as_of is None or time <= as_of
        )
        if negative := [data for data, count in rows.items() if count < 0]:
            raise ConfigError(
                f'cannot list output "{output}": {negative[0]!r} has a negative count',
                hint="Read the counts with updates().",
            )
        return [data for data, count in rows.items() for _ in range(count)]

    def errors(self) -> list[dict[str, Any]]:
        """The error records that have not been retracted."""
        return self.collection(ERRORS)

    def messages(self, output: str) -> list[OutputMessage]:
        """The messages of an output's topic so far, encoded in the output's format."""
        return self.written.messages[self._output(output).name]

    def frontier(self, output: str) -> int:
        """The frontier of an output: no more updates come at times before it."""
        return self.frontiers.get(self._output(output).name, 0)

    @property
    def counted(self) -> Counter[str]:
        """The numbers of late, repeated and other records by kind; see `dataflow.Emitted`."""
        return self.written.counted

    def _output(self, name: str) -> Output:
        # In the checkpoint outputs may have their old names.
        topics = {output.name: output.topic for output in self._written.published}
        for output in self.plan.published:
            if topics.get(name) == output.topic:
                return output
        raise ConfigError(
            f'pipeline "{self.plan.name}" has no output "{name}"',
            hint=f"Its outputs are {', '.join(topics)}.",
        )
