"""The files of the console; they hold no data, and so need no token."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from ikebana.processor.console import site


def routes() -> list[Route]:
    """Make the routes; the root leads to the console."""
    return [Route("/", _root), Route(site.ROOT + "{name:path}", _file)]


def is_of_console(path: str) -> bool:
    """Whether a path is the root or below that of the console."""
    return path == "/" or path.startswith(site.ROOT)


async def _root(_: Request) -> Response:
    return RedirectResponse(site.ROOT, headers=site.HEADERS)


async def _file(request: Request) -> Response:
    found = site.asset(request.url.path)
    if found is None:
        return PlainTextResponse("the console has no such file\n", 404, site.HEADERS)
    return Response(found.body, 200, site.HEADERS, found.content_type)
