"""Transactions of others that stay open, and hold the last stable offset of a topic."""

from collections.abc import Callable

from chaos.life import SOURCE, Life
from chaos.scenario import Scenario, scenario
from support.pipeline_processes import produce


def _held(name: str, topic: Callable[[Life], str], does: str, *, commits: bool) -> Scenario:
    def act(life: Life) -> None:
        at = topic(life)
        records = [(b"k%d" % number, b'{"v":9}') for number in range(50)]
        foreign = produce(life.servers, at, records, transaction=f"foreign-{life.seed}-{name}")
        try:
            if again := life.choice.random() < 0.5:
                life.kill()
                life.start()
            life.did.append("killed and started meanwhile" if again else "running")
            life.wait(life.held_s)
        finally:
            if commits and life.choice.random() < 0.5:
                life.did.append("committed")
                foreign.commit_transaction(30)
            else:
                life.did.append("aborted")
                foreign.abort_transaction(30)

    act.__name__ = name
    ends = "its commit or its end" if commits else "its end without a commit"
    return scenario("transaction", does=f"an open transaction {does}", ends=ends)(act)


input_held = _held(
    "transaction_in_input", lambda _: SOURCE, "of another in the input", commits=True
)
output_held = _held(
    "transaction_in_output",
    lambda life: life.pipeline.target,
    "of another in the output",
    commits=False,
)
progress_held = _held(
    "transaction_in_progress",
    lambda life: life.pipeline.target + ".progress",
    "of another in the progress of the output",
    commits=False,
)
commits_held = _held(
    "transaction_in_commits",
    lambda _: "chaos.commits",
    "of another in the topic of commit records",
    commits=False,
)
