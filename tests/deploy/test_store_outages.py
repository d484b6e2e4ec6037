"""A real object store that throttles, fails, or is away: what that comes to in a run.

Its answers are those of the proxies of `chaos`; Spark takes no part.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from chaos.http_faults import Fault, FaultyHttp
from chaos.proxy import Proxy, State
from deploy import object_store, tools
from deploy.charts import tool
from deploy.object_store import BUCKET
from ikebana.arrangements.files import Folder
from ikebana.errors import StorageError
from ikebana.processor.checkpoint.checkpoint import Checkpoint
from ikebana.processor.kafka.broker import free_port
from ikebana.processor.spark import failures

pytestmark = pytest.mark.deploy
FAULTS: list[Fault] = ["throttled", "failing", "resetting", "losing"]
STATES: list[State] = ["refused", "reset"]


class Store:
    """The way to a store, and what becomes of requests."""

    def __init__(self, answers: FaultyHttp, link: Proxy) -> None:
        self.answers = answers
        self.link = link


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    tool(tools.versitygw)
    with ExitStack() as stack:
        real = stack.enter_context(object_store.serving(tmp_path_factory.mktemp("store")))
        answers = stack.enter_context(FaultyHttp(free_port(), real.port))
        link = stack.enter_context(Proxy(free_port(), answers.port))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {
            **object_store.USER,
            "AWS_REGION": object_store.REGION,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{link.port}",
        }.items():
            patch.setenv(name, value)
        yield Store(answers, link)


LOCATION = f"s3a://{BUCKET}/away"
ACTS: dict[str, Callable[[], object]] = {
    "write": lambda: Folder.at(LOCATION, "shards").write("run", ".run", [b"new"]),
    "read": lambda: list(Folder.at(LOCATION, "shards").read("run-2c26b46b68ffc68f.run")),
    "names": lambda: Folder.at(LOCATION, "shards").names(),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("how", [*FAULTS, *STATES])
def test_a_run_is_started_again_after_it(store: Store, how: str, act: str) -> None:
    """Whatever it was about to do; as often as not it has been done."""
    Folder.at(LOCATION, "shards").write("run", ".run", [b"foo"])
    with ExitStack() as stack:
        if how in FAULTS:
            stack.callback(store.answers.become, "none")
            store.answers.become(how)
        else:
            stack.callback(store.link.become, "open")
            store.link.become(how)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="AWS Error") as raised:
            ACTS[act]()
        with pytest.raises(StorageError, match="could not read"):
            Checkpoint(LOCATION).metadata()

    assert failures.is_transient(failures.own_error(raised.value))
    assert failures.is_transient(
        failures.own_error_in(f"PythonException: OSError: {raised.value}")
    )
    assert list(Folder.at(LOCATION, "shards").read("run-2c26b46b68ffc68f.run")) == [b"foo"]
