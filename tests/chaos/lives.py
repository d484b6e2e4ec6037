"""The lives that scenarios are brought about in, and what each of them needs around it."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from chaos.brokers import proxied
from chaos.cluster import clustered
from chaos.delivered import Delivered, serving
from chaos.executors import on_cluster
from chaos.life import Life
from chaos.plans import JOINED, UPSERT, Plan
from chaos.scenario import Result, Scenario, scenarios
from chaos.served import Served
from chaos.small_disks import small_disks
from chaos.stored import stored


class Lasting(NamedTuple):
    """How many seconds transactions may last, and faults last beyond that."""

    max_batch_s: int = 6
    longer_s: float = 3.0


LASTING = Lasting()
# They can come within one life.
_OF_PIPELINES = {"kill", "stop", "network", "transaction", "file", "disk", "clock"}
# These have lives of their own.
_SINKS = ("sink-files", "sink-database", "sink-bucket")
_ALONE = ("cluster", "serve", "edit", "loss", "bucket", "executor", *_SINKS)


@contextmanager
def living(
    kind: str, folder: Path, seed: int, lasting: Lasting = LASTING, plan: Plan = UPSERT
) -> Iterator[Life | Served | Delivered]:
    """A life for scenarios of a kind: over one broker behind a proxy, or over three brokers."""
    with small_disks(folder), ExitStack() as stack:
        made: Life | Served | Delivered
        if kind == "cluster":
            made = Life(folder, stack.enter_context(clustered()), None, seed, *lasting, plan)
        elif kind == "serve":
            made = Served(folder, *stack.enter_context(proxied()), seed, sum(lasting))
        elif kind == "bucket":
            made = stack.enter_context(stored(folder, seed, *lasting, plan))
        elif kind in _SINKS:
            made = Delivered(folder, stack.enter_context(serving(kind, folder)), seed)
        elif kind == "executor":
            # Among its faults is an edit.
            made = stack.enter_context(on_cluster(folder, seed, *lasting, JOINED))
        else:
            plan = JOINED if kind == "edit" else plan
            made = Life(folder, *stack.enter_context(proxied()), seed, *lasting, plan)
        stack.callback(made.close)
        yield made


def ordered(chosen: Iterable[Scenario], seed: int) -> list[list[Scenario]]:
    """The scenarios of each life, in an order of the seed's."""
    found = []
    for kinds in (_OF_PIPELINES, *({kind} for kind in _ALONE)):
        order = [one for one in chosen if one.kind in kinds]
        if len(order) > 1:
            Random(seed).shuffle(order)
        # What clocks need slows everything that comes after.
        order.sort(key=lambda one: one.kind == "clock")
        found.append(order)
    return [order for order in found if order]


def results(kind: str, folder: Path, seeds: Iterable[int], *names: str) -> Iterator[Result]:
    """Bring about scenarios of a kind, by the ends of their names, with some seeds.

    Raises: Unavailable.
    """
    known = scenarios()
    for seed in seeds:
        (folder / str(seed)).mkdir()
        with living(kind, folder / str(seed), seed) as life:
            for name in names:
                yield life.go(known[f"{kind}-{name}"])
