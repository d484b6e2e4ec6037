"""How many queries run at once, and how many one caller may have in the server."""

import asyncio
from collections.abc import Callable

from ikebana.serving.http.refusing import TooManyError
from ikebana.serving.sql import query
from ikebana.serving.sql.query import Limits, Result
from ikebana.serving.view import CollectionView

# Each may take the memory and the time of its limits.
_MOST_RUNNING = 2
# Of one caller, running or waiting.
_MOST_ASKED = 16


class Queries:
    """Runs the queries of all callers, some at once, each within its limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.running = asyncio.Semaphore(_MOST_RUNNING)

    def of_caller(self) -> "CallersQueries":
        """Return the queries of one more caller."""
        return CallersQueries(self)


class CallersQueries:
    """The queries of one caller, which cannot keep all others waiting."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._asked = 0

    async def run(
        self, text: str, view_of: Callable[[str], CollectionView], as_of: int | None
    ) -> Result:
        """Run a query, after those before it.

        Raises:
            TooManyError: the caller has too many in the server.
            IkebanaError: the query is refused, or exceeds a limit.
        """
        if self._asked >= _MOST_ASKED:
            raise TooManyError(
                f"there are {self._asked} queries of this reader already",
                hint="Wait until some are answered.",
            )
        self._asked += 1
        try:
            async with self._queries.running:
                return await asyncio.to_thread(
                    query.run, text, view_of, as_of, self._queries.limits
                )
        finally:
            self._asked -= 1
