"""Faults of the object store that has the checkpoint, and of the way to it."""

from chaos.http_faults import Fault
from chaos.proxy import State
from chaos.runs import Wrong
from chaos.scenario import Outcome, Scenario, scenario
from chaos.stored import Stored

_MAY_END: tuple[Outcome, ...] = ("exact", "ended")


def _answers(name: str, fault: Fault, share: float, does: str) -> Scenario:
    def act(life: Stored) -> None:
        life.at_some_moment()
        before = life.answers.done
        life.answers.become(fault, share)
        try:
            life.wait(2 * life.stopped_s)
        finally:
            life.answers.become("none")
        life.did.append(f"{life.answers.done - before} requests")
        if life.answers.done == before:
            raise Wrong("the store was not asked for anything")

    act.__name__ = name
    ends = "the store answers as usual"
    return scenario("bucket", does=f"the checkpoint's object store {does}", ends=ends)(act)


throttled = _answers("bucket_throttles", "throttled", 0.5, "throttles every second request")
throttled_all = _answers("bucket_throttles_all", "throttled", 1.0, "throttles all requests")
failing = _answers("bucket_fails", "failing", 0.5, "fails every second request")
resetting = _answers("bucket_resets", "resetting", 0.3, "resets connections")
losing = _answers(
    "bucket_loses_answers", "losing", 0.3, "does a request, and resets instead of answering"
)
late = _answers("bucket_late", "late", 1.0, "takes a second longer for each answer")


def _link(state: State, does: str) -> Scenario:
    def act(life: Stored) -> None:
        life.at_some_moment()
        life.link.become(state)
        try:
            life.wait(2 * life.stopped_s)
        finally:
            life.link.become("open")

    act.__name__ = f"bucket_link_{state}".replace("-", "_")
    does = f"the way to the object store: {does}"
    return scenario("bucket", does=does, ends="an open link")(act)


half_open = _link("half-open", "connections are made, what is sent vanishes")
refused = _link("refused", "connections end, and nobody listens")


@scenario("bucket", does="SIGKILL of the object store", ends="another start of it")
def bucket_kill(life: Stored) -> None:
    life.at_some_moment()
    life.store.kill()
    life.wait(life.stopped_s)
    life.store.start()


@scenario(
    "bucket", does="SIGKILL of the object store and of the run", ends="another start of both"
)
def bucket_kill_both(life: Stored) -> None:
    life.at_some_moment()
    life.store.kill()
    life.kill()
    life.store.start()


@scenario(
    "bucket",
    does="old listings of the object store for a run that is killed and started",
    ends="listings of now",
    accepts=_MAY_END,
)
def bucket_stale_listings(life: Stored) -> None:
    life.answers.become("stale")
    try:
        # What was listed stays so.
        life.kill()
        life.start()
        if life.goes_on():
            life.goes_on()
            life.kill()
            life.start()
            life.goes_on()
    finally:
        life.answers.become("none")
