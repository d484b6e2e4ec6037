"""A broker, a pipeline under load, whoever runs it now, and the judgement after each fault."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import psutil
from click.testing import CliRunner
from confluent_kafka import KafkaException

from chaos import dumps
from chaos.brokers import ProxiedBroker
from chaos.cluster import NODES, Cluster
from chaos.going import gone
from chaos.plans import EDITED, UPSERT, Plan
from chaos.proxy import Proxy
from chaos.runs import Runs, Wrong, wait
from chaos.scenario import Result, Scenario
from chaos.starved import Standstill
from ikebana.processor.cli.main import cli
from ikebana.processor.spark.workers import serving
from support.output_judge import Reader, judge, offsets
from support.pipeline_processes import Load, Pipeline, Run, create, ends_of
from support.process_trees import name_of
from support.waiting import patient

# Longer than a pipeline waits for brokers, and starts.
RECOVERS_S = 180.0
SOURCE = "upserts"


class Life:
    """One pipeline over many faults; `choice` is that of the scenario and the seed."""

    def __init__(
        self,
        folder: Path,
        brokers: ProxiedBroker | Cluster,
        proxy: Proxy | None,
        seed: int,
        max_batch_s: int,
        longer_s: float,
        plan: Plan = UPSERT,
    ) -> None:
        self.stopped_s = max_batch_s + longer_s
        """How long faults last that last longer than a transaction may."""
        self.held_s = longer_s
        """How long others last."""
        self.folder = folder
        self.brokers = brokers
        self._proxy = proxy
        self.seed = seed
        self.servers = brokers.bootstrap_servers
        replicas = NODES if isinstance(brokers, Cluster) else 1
        self.choice = Random(seed)
        self.did: list[str] = []
        self._stacks = folder / "stands-still.txt"
        self.environment = dumps.environment(self._stacks)
        """What the pipeline is started with."""
        # Every second life has a time for each record.
        self.pipeline = Pipeline(
            folder,
            brokers.proxied_servers,
            "chaos",
            SOURCE,
            "ingest" if seed % 2 else "offset",
            settings={
                "heartbeat": "400ms",
                "retained_batches": 5,
                "max_batch": f"{max_batch_s}s",
                "restarts": 1000,
            },
            limit=4000,
            replicas=replicas,
            plan=plan.sections,
        )
        self.plan = plan
        self.recovers = False
        """Whether its checkpoint was lost, and made anew of its topics."""
        create(self.servers, SOURCE, 3, replicas=replicas)
        self._reader = Reader(self.servers)
        self.runs = Runs(self._begun, self._stands_still)
        self._loads = 0
        self._progress_end = self._upper = 0

    @property
    def broker(self) -> ProxiedBroker:
        """The only broker, behind a proxy."""
        assert isinstance(self.brokers, ProxiedBroker), "a scenario for one broker"
        return self.brokers

    @property
    def proxy(self) -> Proxy:
        """What the pipeline connects to the only broker through."""
        assert self._proxy is not None, "a scenario for one broker"
        return self._proxy

    @property
    def cluster(self) -> Cluster:
        """The three brokers."""
        assert isinstance(self.brokers, Cluster), "a scenario for three brokers"
        return self.brokers

    @property
    def run(self) -> Run:
        """Who runs the pipeline now."""
        return self.runs.now

    def go(self, scenario: Scenario, *, judged: bool = True) -> Result:
        """Bring about a fault under load, see the pipeline recover, and judge all of it."""
        return gone(self, scenario, judged=judged)

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """Send records for the length of a `with` block."""
        self._loads += 1
        seed = self.seed * 1000 + self._loads
        load = Load(self.servers, SOURCE, keys=200, rate=30, seed=seed)
        load.start()
        try:
            yield
        except BaseException:
            # How the load ends is no error of a scenario that has failed for another reason.
            with suppress(AssertionError):
                load.stop()
            raise
        load.stop()

    def start(self) -> Run:
        """Start the pipeline anew."""
        return self.runs.start()

    def edit(self) -> None:
        """Change the plan, for the next start."""
        self.plan = EDITED[self.plan.name]
        self.pipeline = replace(self.pipeline, plan=self.plan.sections)
        self.did.append(f"to {self.plan.name}")

    def kill(self) -> None:
        """Kill all processes of the run."""
        self.runs.kill()

    def stop(self) -> None:
        """End the run between two batches."""
        self.runs.stop()

    def close(self) -> None:
        """Leave nothing running."""
        self.runs.close()

    def processes(self, what: str) -> list[psutil.Process]:
        """The processes of the run: its `driver`, `jvm`, `worker`s, `owner`s, or `all`."""
        workers = self.run.workers() if what in ("worker", "owner") else []
        match what:
            case "driver":
                return [psutil.Process(self.run.pid)]
            case "jvm":
                return [p for p in self.run.family.alive() if name_of(p) == "java"]
            case "owner":
                return [p for p in workers if name_of(p) == serving.OWNER_NAME]
            case "worker":
                return [p for p in workers if name_of(p) != serving.OWNER_NAME]
            case "broker":
                assert self.broker.pid is not None
                return [psutil.Process(self.broker.pid)]
            case _:
                return self.run.family.alive()

    def one(self, what: str) -> psutil.Process:
        """One of the processes of a kind.

        Raises:
            Wrong: there is none.
        """
        if not (found := self.processes(what)):
            raise Wrong(f"there was no {what}")
        return self.choice.choice(found)

    def goes_on(self) -> bool:
        """Wait until the run closes a time, or ends; whether it has closed one."""
        before, still = self.closed_times(), Standstill(self.run.family.alive)
        while self.run.poll() is None:
            now = self.closed_times()
            if 0 <= before < now:
                return True
            before = max(before, 0) if now >= 0 else before
            if still.seconds() > patient(RECOVERS_S):
                raise self._stands_still(f"without a batch for {patient(RECOVERS_S):.0f} s")
            self.wait(0.1)
        return False

    def wait(self, seconds: float) -> None:
        """Let a fault last."""
        wait(seconds)

    def at_some_moment(self) -> None:
        """Let a fault begin anywhere in a batch."""
        self.wait(self.choice.uniform(0, 1))

    def closed_times(self) -> int:
        """The frontier of the output's progress; -1 while brokers are away."""
        with suppress(KafkaException):
            found = offsets(
                self.servers, [self.pipeline.target + ".progress"], committed_only=True
            )
            # What a start aborts moves this end, too, and closes no time.
            if (end := sum(found.values())) != self._progress_end:
                progress = self.pipeline.progress()
                self._upper = progress[-1].upper if progress else 0
                self._progress_end = end
            return self._upper
        return -1

    def recovered(self) -> tuple[float, list[str]]:
        """Wait until another time is closed; the seconds that took, and how runs have ended."""
        return self.runs.until(self.goes_on)

    def _all_read(self) -> None:
        still = Standstill(self.run.family.alive)
        ends = ends_of(self.servers, [SOURCE])
        upper: int | None = None
        while upper is None or not self._is_closed(upper):
            if upper is None and self.pipeline.has_read(ends):
                upper = self.pipeline.logged_upper()
            if self.run.poll() is not None:
                raise Wrong(f"it ended later: {self.runs.mourned()}")
            if still.seconds() > patient(RECOVERS_S):
                raise self._stands_still(f"with records to read for {patient(RECOVERS_S):.0f} s")
            self.wait(0.1)

    def _begun(self) -> Run:
        return self.pipeline.start(environment=self.environment)

    def _is_closed(self, upper: int) -> bool:
        """Whether the output has come to a frontier of the source: exchanges take batches."""
        progress = self.pipeline.progress()
        return bool(progress) and progress[-1].upper >= upper

    def _stands_still(self, how: str) -> Wrong:
        """Write down where all processes stand; the error for it."""
        topics = [SOURCE, "chaos.commits", *self.pipeline.topics]
        facts: dict[str, object] = {
            "how": how,
            "batches logged": self.pipeline.log("offsets")[-3:],
        }
        facts["batches done"] = self.pipeline.log("commits")[-3:]
        with suppress(KafkaException):
            facts["ends"] = offsets(self.servers, topics, committed_only=False)
            facts["last stable offsets"] = offsets(self.servers, topics, committed_only=True)
        dumps.dump(self.run.family.alive(), facts, self._stacks)
        return Wrong(f"it stands still, {how}; see {self._stacks}: {self.run.text}")

    def judge(self) -> None:
        """Let the pipeline read everything, and compare it with what it should be.

        Raises:
            Wrong: it differs, or processes are left over.
        """
        self._all_read()
        self.runs.nothing_left()
        bad = {
            topic: counts
            for topic, truth in (
                (self.pipeline.target, self.plan.truth(self._reader.truth(SOURCE))),
                ("chaos.errors", {}),
            )
            if (counts := self._bad(topic, truth))
        }
        if bad:
            raise Wrong(f"the output is wrong: {bad}")
        options = ["check", self.pipeline.target, "--bootstrap-servers", self.servers]
        done = CliRunner().invoke(cli, options)
        if done.exit_code != 0:
            # An error such as that of brokers that are away is raised here, and not printed.
            raise Wrong(f"ikebana check: {done.output}{done.exception!r}") from done.exception

    def _bad(self, topic: str, truth: dict[bytes, bytes]) -> dict[str, int]:
        """What is wrong with an output, by the judge that shares no code with ikebana."""
        may_stand = self.plan.may_stand or self.recovers
        found = judge(self.servers, topic, truth, may_stand=may_stand, reader=self._reader)
        if self.recovers:
            # What a batch wrote that was never closed is taken back at its own time.
            found.pop("not consolidated", None)
        return found
