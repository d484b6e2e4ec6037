"""What tests share: one embedded broker for the whole run, and unique topic names."""

import gc
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase

from cdc import registry
from cdc.fetched import Unavailable
from ikebana.processor.kafka.broker import Broker, running
from ikebana.processor.linear.functions import FOLDER_VARIABLE
from ikebana.processor.spark import class_archive
from support.waiting import patient

if TYPE_CHECKING:
    from xdist.scheduler import Scheduling

    # Slow to import, and most tests need none.
    from support.pipeline_processes import PipelineOver, Upserts, Written, WrittenOver

# A noisy machine makes a slow example, not a wrong one, and is slow to draw it; more of them on
# demand.
unhurried = hypothesis.settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
quick = hypothesis.settings(unhurried, max_examples=30)
hypothesis.settings.register_profile("quick", quick)
# Where nobody waits for the smallest example: shrinking takes up to five minutes a failure, and
# what is printed fails again where there is time for it.  The examples are the same each time,
# so that a failure is of what has changed, and fewer; the other profiles look for new ones.
hypothesis.settings.register_profile(
    "unattended",
    quick,
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
    print_blob=True,
    derandomize=True,
)
hypothesis.settings.register_profile("usual", unhurried)
hypothesis.settings.register_profile("thorough", unhurried, max_examples=2_000)
hypothesis.settings.load_profile(os.environ.get("IKEBANA_HYPOTHESIS", "quick"))


# What a test may take on a usual machine, where its mark says nothing else.
_USUAL_TIMEOUT_S = 300.0


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give tests the time that this machine needs, if nobody says how long they may take."""
    if config.option.timeout is None and "PYTEST_TIMEOUT" not in os.environ:
        config.option.timeout = patient(_USUAL_TIMEOUT_S)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a part of the tests be run: `--part 2/3`, so that each is in one of three parts."""
    parser.addoption("--part", default="1/1", help="which part of how many, such as 2/3")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out other parts; give tests with a limit of their own the time of this machine."""
    part, parts = map(int, config.option.part.split("/"))
    # By the name of the file: its tests share what they start, and a new file moves no other.
    mine = [
        each
        for each in items
        if crc32(each.nodeid.partition("::")[0].encode()) % parts == part % parts
    ]
    if others := {*items} - {*mine}:
        config.hook.pytest_deselected(items=[*others])
        items[:] = mine
    for item in items:
        if (mark := item.get_closest_marker("timeout")) is not None:
            item.add_marker(pytest.mark.timeout(patient(mark.args[0])), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "Scheduling | None":
    """Let one worker wait for brokers and Spark while the others compute."""
    if config.getvalue("dist") != "loadfile":
        return None
    from support.distribution import WaitingTogether

    return WaitingTogether(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, which would look at all tests, again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """After each file collect garbage: a process that runs batches does so seldom.

    Clients that a test leaves open have dozens of files, and Py4J cannot use the 1025th.
    """
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another test has looked for modules of users is not where this one does."""
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    monkeypatch.setattr(sys, "path", sys.path.copy())


@pytest.fixture(autouse=True, scope="session")
def _nothing_in_the_background() -> Iterator[None]:
    """A run of a test leaves no process behind; `make test` makes the archive of classes first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(class_archive.VARIABLE, "off")
        yield


@dataclass(frozen=True, slots=True)
class ExternalBroker:
    """A broker that somebody else runs, named by IKEBANA_TEST_BOOTSTRAP."""

    bootstrap_servers: str


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker | ExternalBroker]:
    """One broker for the whole run; a test that stops or kills one runs its own."""
    if servers := os.environ.get("IKEBANA_TEST_BOOTSTRAP"):
        yield ExternalBroker(servers)
        return
    with running() as embedded:
        yield embedded


@pytest.fixture(scope="session")
def apicurio() -> Iterator[registry.ApicurioRegistry]:
    """One real schema registry for the whole run; it is slow to start."""
    try:
        with registry.running() as found:
            yield found
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def pipeline_over(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> "PipelineOver":
    """Make pipelines with names and inputs of their own; see `Pipeline`."""
    from support.pipeline_processes import Pipeline, create

    def made(
        partitions: int,
        records: "Upserts" = (),
        topic: Mapping[str, str] | None = None,
        **of_pipeline: Any,
    ) -> Pipeline:
        found = Pipeline(
            **{
                "folder": tmp_path,
                "servers": broker.bootstrap_servers,
                "name": topic_name("pipeline"),
                "source": topic_name("in"),
                **of_pipeline,
            }
        )
        create(found.servers, found.source, partitions, topic)
        found.send(records)
        return found

    return made


@pytest.fixture
def written_over(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> "WrittenOver":
    """Make pipelines without sections, and topics `<name>.<topic>`; see `Written`."""
    from support.pipeline_processes import create, written

    def made(*topics: str, partitions: int = 2, **of_pipeline: Any) -> "Written":
        servers, name = broker.bootstrap_servers, topic_name("shop")
        for topic in topics:
            create(servers, f"{name}.{topic}", partitions)
        return written(tmp_path, servers, name, {}, **of_pipeline)

    return made


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Name a topic that no test has used, also on a broker that outlives the run."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:12]}"
