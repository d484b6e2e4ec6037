"""The loss of brokers of three, and moves of leaders between them."""

from collections.abc import Callable

import psutil

from chaos.cluster import Node
from chaos.life import SOURCE, Life
from chaos.runs import paused
from chaos.scenario import Scenario, scenario
from support.waiting import wait_until

_LEADS_S = 60.0
# Longer than a broker's session, after which others lead in its place.
_ELECTED_S = 8.0


def _leader(life: Life) -> Node:
    """The leader of one of the topics of the pipeline."""
    target = life.pipeline.target
    topic = life.choice.choice([target, target + ".progress", "chaos.commits", SOURCE])
    node = life.cluster.leader_of(topic)
    life.did.append(f"the leader of {topic}, broker {node.number}")
    return node


def _others(life: Life) -> list[Node]:
    """Two of three."""
    chosen = life.choice.sample(life.cluster.nodes, 2)
    life.did.append("brokers " + " and ".join(str(node.number) for node in chosen))
    return chosen


def _one_after_another(life: Life, end: Callable[[Node], object]) -> None:
    for node in life.choice.sample(life.cluster.nodes, 3):
        end(node)
        life.cluster.start()
        life.wait(life.choice.uniform(0, 2))


def _killed(name: str, which: Callable[[Life], list[Node]], does: str) -> Scenario:
    def act(life: Life) -> None:
        life.at_some_moment()
        lost = which(life)
        for node in lost:
            node.kill()
        life.wait(life.stopped_s)
        life.cluster.start()

    act.__name__ = name
    return scenario("cluster", does=f"SIGKILL of {does}", ends="their start")(act)


def _stopped(name: str, which: Callable[[Life], list[Node]], does: str) -> Scenario:
    def act(life: Life) -> None:
        life.at_some_moment()
        with paused(psutil.Process(node.pid) for node in which(life) if node.pid):
            life.wait(life.stopped_s)

    act.__name__ = name
    return scenario("cluster", does=f"SIGSTOP of {does}", ends="SIGCONT")(act)


kill_leader = _killed("cluster_kill_leader", lambda life: [_leader(life)], "a leader of three")
kill_two = _killed("cluster_kill_two", _others, "two of three brokers")
kill_cluster = _killed("cluster_kill_all", lambda life: life.cluster.nodes, "all three brokers")
stop_leader = _stopped("cluster_stop_leader", lambda life: [_leader(life)], "a leader of three")
stop_two = _stopped("cluster_stop_two", _others, "two of three brokers")


@scenario("cluster", does="SIGKILL of the run and a leader of three", ends="another start of both")
def cluster_kill_run_and_leader(life: Life) -> None:
    life.at_some_moment()
    _leader(life).kill()
    life.kill()
    life.start()
    life.wait(life.held_s)
    life.cluster.start()


@scenario("cluster", does="SIGSTOP of a leader of three while the run is killed", ends="SIGCONT")
def cluster_stop_leader_at_start(life: Life) -> None:
    node = _leader(life)
    assert node.pid is not None
    with paused([psutil.Process(node.pid)]):
        life.wait(life.stopped_s)
        life.kill()
        life.start()
    life.wait(life.held_s)


@scenario("cluster", does="a restart of each of three brokers in turn", ends="by itself")
def cluster_rolling_restart(life: Life) -> None:
    _one_after_another(life, Node.stop)


@scenario("cluster", does="SIGKILL of each of three brokers in turn", ends="their starts")
def cluster_rolling_kill(life: Life) -> None:
    _one_after_another(life, Node.kill)


@scenario("cluster", does="leaders move away from a broker of three and back", ends="by itself")
def cluster_leaders_move(life: Life) -> None:
    for _ in range(2):
        _leader(life).stop()
        life.cluster.start()
        wait_until(life.cluster.led_as_preferred, _LEADS_S, "the preferred leaders")


def _topics(life: Life) -> list[str]:
    return [*life.pipeline.topics, "chaos.commits", SOURCE]


@scenario(
    "cluster",
    does="a leader of three and the other two do not reach each other, clients reach all",
    ends="they do",
)
def cluster_leader_apart(life: Life) -> None:
    life.at_some_moment()
    with life.cluster.apart(_leader(life)):
        life.wait(life.stopped_s + _ELECTED_S)


@scenario(
    "cluster",
    does="a leader of three and the other two do not reach each other while the run is killed",
    ends="they do",
)
def cluster_leader_apart_at_start(life: Life) -> None:
    with life.cluster.apart(_leader(life)):
        life.wait(life.stopped_s)
        life.kill()
        life.start()
        life.wait(life.stopped_s)


@scenario(
    "cluster", does="all partitions move to two of three brokers, and back to three", ends="itself"
)
def cluster_reassign(life: Life) -> None:
    life.at_some_moment()
    brokers = [node.number for node in life.choice.sample(life.cluster.nodes, 3)]
    life.did.append(f"away from broker {brokers[2]}")
    life.cluster.reassign(_topics(life), brokers[:2])
    life.wait(life.choice.uniform(0, 2))
    life.cluster.reassign(_topics(life), [*brokers[1:], brokers[0]])
