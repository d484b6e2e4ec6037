"""Errors as HTTP answers, each with its status."""

from starlette.responses import Response

from ikebana.errors import IkebanaError
from ikebana.processor.watching.guard import problem
from ikebana.processor.watching.plan_view import NoPlanError
from ikebana.serving.reads import TooLargeError, WaitedError
from ikebana.serving.view import UnknownCollectionError, UnreadableTimeError


class TooManyError(IkebanaError):
    """A client asks for too much at once."""


class SlowError(IkebanaError):
    """The body of a request takes too long to come."""


class NotPermittedError(IkebanaError):
    """A token may not see what it asks for."""


def refusal(error: IkebanaError) -> Response:
    """Answer why a request is refused."""
    match error:
        case UnreadableTimeError(since=since, upper=upper, is_past=is_past):
            status = 410 if is_past else 409
            return problem(status, error.message, error.hint, since, upper)
        case UnknownCollectionError() | NoPlanError():
            status = 404
        case NotPermittedError():
            status = 403
        case WaitedError() | SlowError():
            status = 408
        case TooLargeError():
            status = 413
        case TooManyError():
            status = 429
        case _:
            status = 400
    return problem(status, error.message, error.hint)
