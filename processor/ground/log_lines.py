"""Log lines as JSON, for machines that collect them: `IKEBANA_LOG=json`.

One object a line on standard error, with `time`, `level`, `logger` and `message`, and
`exception` where there is one; what libraries log looks the same.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType

import click

_VARIABLE = "IKEBANA_LOG"
_OWN = logging.getLogger("ikebana")


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """The object, on one line."""
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def choose(environ: Mapping[str, str]) -> None:
    """Log as JSON from here on if the environment asks for it."""
    if environ.get(_VARIABLE) != "json":
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.captureWarnings(capture=True)
    _OWN.setLevel(logging.INFO)
    sys.excepthook = _uncaught


def wanted() -> bool:
    """Whether lines are for machines."""
    return _OWN.level == logging.INFO


def info(message: str, **fields: object) -> None:
    """Log what happened, with fields of its own."""
    _OWN.info(message, extra={"fields": fields})


def error(message: str) -> None:
    """Tell what ended a command, to a person or to a machine."""
    if wanted():
        _OWN.error(message)
    else:
        click.echo(message, err=True)


def _uncaught(
    kind: type[BaseException], found: BaseException, trace: TracebackType | None
) -> None:
    _OWN.critical("uncaught", exc_info=(kind, found, trace))
