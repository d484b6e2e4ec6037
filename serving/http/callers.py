"""Each caller's view of the service, and the operations over it."""

import time
from collections.abc import Callable
from typing import NamedTuple

from ikebana.processor.watching.access import Grant
from ikebana.processor.watching.history import HistorySample, SampleHistory
from ikebana.processor.watching.plan_view import PlanView, no_plan
from ikebana.serving.http.bell import Bell
from ikebana.serving.http.operations import Api, Queries, lag_of
from ikebana.serving.http.refusing import NotPermittedError
from ikebana.serving.http.subscriptions import Encoded, Subscriptions
from ikebana.serving.permitted import Permitted
from ikebana.serving.service import Service
from ikebana.serving.sql.query import Limits


class Caller(NamedTuple):
    """Who answers the requests of one reader."""

    views: Permitted
    api: Api
    subscriptions: Subscriptions


class Callers:
    """The readers of a service, one for each grant; made in the event loop."""

    def __init__(
        self,
        service: Service,
        bell: Bell,
        plan: Callable[[], PlanView] = no_plan,
        limits: Limits = Limits(),  # noqa: B008 - immutable
    ) -> None:
        self._service = service
        self._bell = bell
        self._plan = plan
        self._queries = Queries(limits)
        self._history = SampleHistory()
        # A grant lives as long as the server, and no two have the same rights by their names.
        self._callers: dict[int, Caller] = {}
        self._encoded = Encoded()

    def of(self, grant: Grant) -> Caller:
        """Return who answers a reader."""
        if (caller := self._callers.get(id(grant))) is not None:
            return caller
        views = Permitted(self._service, grant)
        plan = self._plan if grant.collections is None else _hidden_plan
        caller = Caller(
            views,
            Api(views, self._bell, self._queries, plan, self._history),
            Subscriptions(views, self._bell, self._encoded),
        )
        self._callers[id(grant)] = caller
        return caller

    @property
    def open(self) -> int:
        """How many subscriptions are open."""
        return sum(each.subscriptions.open for each in self._callers.values())

    def sample(self) -> None:
        """Take a sample of the lag and the updates of all collections."""
        self._history.take(time.time_ns() // 1_000_000, self._samples)

    def _samples(self) -> dict[str, HistorySample]:
        samples = {}
        for name in self._service.names():
            standing = self._service.standing(name)
            lag = lag_of(self._service.view(name))
            samples[name] = HistorySample(
                standing.caught_up_s if lag is None else lag, standing.updates
            )
        return samples

    def end(self) -> None:
        """End all subscriptions soon."""
        for each in self._callers.values():
            each.subscriptions.end()


def _hidden_plan() -> PlanView:
    raise NotPermittedError("the plan is shown to tokens that may see all collections")
