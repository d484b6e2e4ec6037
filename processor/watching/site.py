"""The console: one page on a running server or pipeline, which loads nothing from elsewhere.

Its files are part of the package.  They have no data, and so need no token.

A request names a file of a fixed list, so no name of a client becomes a path.  The policy of
the page allows what this server sends and nothing else: no script, style or text of data runs.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from ikebana.processor.explain import svg

ROOT = "/console/"
_PLAN_STYLE = "plan.css"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # Only the drawing of a plan is parsed from text, as SVG.
    "require-trusted-types-for": "'script'",
    "trusted-types": "ikebana-plan",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The files change with the version of the package, and are small.
    "Cache-Control": "no-cache",
}
# Of an answer with data: no cache keeps it.
UNKEPT = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Asset(NamedTuple):
    """A file of the console."""

    content_type: str
    body: bytes


def asset(path: str) -> Asset | None:
    """Return the file of a request's path, or None if the console has no such file."""
    if not path.startswith(ROOT):
        return None
    return _assets().get(path.removeprefix(ROOT) or "index.html")


def routes() -> list[Route]:
    """Make the routes of the page; the root leads to it."""
    return [Route("/", _root), Route(ROOT + "{name:path}", _file)]


def is_of_console(path: str) -> bool:
    """Whether a path is the root or below that of the console."""
    return path == "/" or path.startswith(ROOT)


async def _root(_: Request) -> Response:
    return RedirectResponse(ROOT, headers=HEADERS)


async def _file(request: Request) -> Response:
    file = asset(request.url.path)
    if file is None:
        return PlainTextResponse("the console has no such file\n", 404, HEADERS)
    return Response(file.body, 200, HEADERS, file.content_type)


@functools.cache
def _assets() -> Mapping[str, Asset]:
    assets = {_PLAN_STYLE: Asset(_TYPES["css"], svg.stylesheet().encode())}
    for file in (resources.files("ikebana.processor.watching") / "page").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in _TYPES:
            assets[file.name] = Asset(_TYPES[kind], file.read_bytes())
    return assets
