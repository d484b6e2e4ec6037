"""SIGSTOP for longer than transactions and sessions last, then SIGCONT."""

from chaos.life import Life, Wrong
from chaos.scenario import Scenario, scenario


def _stopping(what: str, does: str) -> Scenario:
    def act(life: Life) -> None:
        life.wait(life.choice.uniform(0, 1))
        with life.paused(life.processes(what)):
            life.wait(life.stopped_s)

    act.__name__ = f"stop_{what}"
    return scenario("stop", does=f"SIGSTOP of {does}", ends="SIGCONT")(act)


stop_driver = _stopping("driver", "the driver")
stop_jvm = _stopping("jvm", "Spark's JVM")
stop_worker = _stopping("worker", "Spark's Python workers")
stop_owner = _stopping("owner", "the processes that own shards")
stop_broker = _stopping("broker", "the broker")
stop_all = _stopping("all", "all processes of the run")


@scenario(
    "stop",
    does="SIGSTOP of all processes of the run while another instance takes over",
    ends="SIGCONT; the older one has to end by itself and write nothing",
)
def stop_and_replace(life: Life) -> None:
    life.wait(life.choice.uniform(0, 1))
    older = life.run
    with life.paused(life.processes("all")):
        life.start()
        if not life.goes_on():
            raise Wrong(f"the newer one ended: {life.run.text}")
    status = older.wait(120)
    if status == 0 or "taken over" not in older.text:
        raise Wrong(f"the older one ended with status {status}: {older.text}")


@scenario(
    "stop",
    does="SIGSTOP of the processes that own shards while another instance takes over",
    ends="SIGCONT; the older one has to end by itself and write nothing",
)
def stop_owners_and_replace(life: Life) -> None:
    life.wait(life.choice.uniform(0, 1))
    older = life.run
    with life.paused(life.processes("owner")):
        life.start()
        if not life.goes_on():
            raise Wrong(f"the newer one ended: {life.run.text}")
    status = older.wait(120)
    if status == 0 or "taken over" not in older.text:
        raise Wrong(f"the older one ended with status {status}: {older.text}")
