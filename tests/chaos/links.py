"""Faults of the network between the pipeline and the broker."""

from chaos.life import Life
from chaos.proxy import State
from chaos.scenario import Scenario, scenario


def _link(state: State, does: str) -> Scenario:
    def act(life: Life) -> None:
        life.at_some_moment()
        life.proxy.become(state)
        try:
            life.wait(life.stopped_s)
        finally:
            life.proxy.become("open")

    act.__name__ = f"link_{state}".replace("-", "_")
    return scenario("network", does=does, ends="an open link")(act)


cut = _link("cut", "nothing comes through, later all of it")
half_open = _link("half-open", "connections are made, what is sent vanishes")
slow = _link("slow", "20 kB a second each way")
delay = _link("delay", "each piece takes half a second longer")
refused = _link("refused", "connections end, and nobody listens")
reset = _link("reset", "connections are made and reset")


@scenario("network", does="one reset after the other, at random", ends="an open link")
def link_flaps(life: Life) -> None:
    for _ in range(8):
        life.proxy.become("reset")
        life.wait(life.choice.uniform(0, 0.3))
        life.proxy.become("open")
        life.wait(life.choice.uniform(0, 1.5))
