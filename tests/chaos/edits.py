"""Edits of a plan with a join and an exchange, by whoever is killed meanwhile."""

from chaos.life import Life
from chaos.runs import Wrong
from chaos.scenario import scenario

# Within this an edit begins, fills, and ends.
_FILLS_S = 20.0


@scenario("edit", does="an edit of the plan", ends="by itself")
def edit(life: Life) -> None:
    life.stop()
    life.edit()
    life.start()


@scenario("edit", does="an edit, and SIGKILL of the run while it is done", ends="another start")
def edit_and_kill(life: Life) -> None:
    life.stop()
    life.edit()
    for _ in range(2):
        life.start()
        life.wait(life.choice.uniform(1, _FILLS_S))
        life.kill()


@scenario("edit", does="an edit, and SIGKILL of owners and workers", ends="by itself")
def edit_and_kill_pythons(life: Life) -> None:
    life.stop()
    life.edit()
    life.start()
    for _ in range(4):
        life.wait(life.choice.uniform(1, _FILLS_S / 4))
        for process in [*life.processes("owner"), *life.processes("worker")]:
            process.kill()


@scenario("edit", does="an edit over a link that flaps", ends="an open link")
def edit_while_flapping(life: Life) -> None:
    life.stop()
    life.edit()
    life.start()
    for _ in range(6):
        life.wait(life.choice.uniform(0, _FILLS_S / 5))
        life.proxy.become("reset")
        life.wait(life.choice.uniform(0, 0.3))
        life.proxy.become("open")


@scenario(
    "edit",
    does="an edit, and the metadata from before it come back",
    ends="the right metadata come back",
    accepts=("ended",),
)
def edit_and_old_metadata(life: Life) -> None:
    life.stop()
    file = life.pipeline.place / "ikebana.json"
    old = file.read_bytes()
    life.edit()
    life.start()
    # What is on its way is finished under the plan of before first.
    while file.read_bytes() == old:
        if not life.goes_on():
            raise Wrong(f"it ended: {life.run.text}")
    for _ in range(2):
        life.goes_on()
    life.stop()
    new = file.read_bytes()
    file.write_bytes(old)
    life.start()
    if life.goes_on():
        raise Wrong("it went on with old metadata")
    file.write_bytes(new)
