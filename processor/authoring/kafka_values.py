"""Checks values of Kafka settings by the client's own library.

No client is created and nothing connects: after the setting comes one that does not exist, at
which the library stops in any case.
"""

import functools
import re

from confluent_kafka import KafkaException, Producer

from ikebana.processor.authoring.settings import redacted
from ikebana.processor.base.texts import hint

_NONE = "ikebana.no.such.setting"
# Not checked, since the library would load the file.
_UNASKED = {"plugin.library.paths"}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# The library checks these only when it connects, so they are listed here.
_MECHANISMS = ("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_CHOICES = {
    "security.protocol": _PROTOCOLS,
    "sasl.mechanism": _MECHANISMS,
    "sasl.mechanisms": _MECHANISMS,
}
_RANGE = re.compile(r"value \S+ is outside allowed range (\S+)\.\.(\S+)")


def value_problem(name: str, value: str) -> str | None:
    """Why a setting cannot have a value; None if it can.  Secret values are not shown.

    >>> value_problem("security.protocol", "SASL_SLL")
    'must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; is "SASL_SLL"; did you mean \
"SASL_SSL"?'
    """
    expected = _expected(name, value)
    if expected is None:
        return None
    shown = redacted({name: value})[name]
    meant = hint(value, _CHOICES.get(name, ())) if shown == value else ""
    return f'must be {expected}; is "{shown}"{meant}'


def _expected(name: str, value: str) -> str | None:
    """What the value must be; None if the client accepts it."""
    if (choices := _CHOICES.get(name)) is not None:
        return None if value.upper() in choices else f"one of {', '.join(choices)}"
    if name in _UNASKED or (said := _refusal(name, value)) is None:
        return None
    if limits := _RANGE.search(said):
        return f"a whole number from {limits[1]} to {limits[2]}"
    if said.startswith("Expected bool"):
        return "true or false"
    return "a value that Kafka's client takes (librdkafka's CONFIGURATION.md lists them)"


@functools.lru_cache(maxsize=1024)
def _refusal(name: str, value: str) -> str | None:
    try:
        Producer({name: value, _NONE: ""})
    except (KafkaException, TypeError, ValueError) as error:
        said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        return None if _NONE in said else said
    raise AssertionError(f"Kafka's client has a setting {_NONE}")
