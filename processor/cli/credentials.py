"""Options for commands that connect to an `ikebana serve`: the token and TLS."""

import functools
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from ikebana.errors import ConfigError

Command = Callable[..., None]


class Credentials(NamedTuple):
    """The token that is sent, and the TLS context: trusted authorities, client certificate."""

    token: str | None
    tls: ssl.SSLContext


def with_credentials(command: Command) -> Command:
    """Add `--token`, `--tls-ca` and `--tls-cert`; the command gets them as `credentials`."""

    @click.option(
        "--token",
        metavar="TOKEN",
        envvar="IKEBANA_TOKEN",
        help="The token of an `ikebana serve`. [env: IKEBANA_TOKEN]",
    )
    @click.option(
        "--tls-ca",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The authority that signed the server's certificate, if the system lacks it; PEM.",
    )
    @click.option(
        "--tls-cert",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The certificate to show, with its key, if the server asks for one; PEM.",
    )
    @functools.wraps(command)
    def wrapper(
        *arguments: object,
        token: str | None,
        tls_ca: Path | None,
        tls_cert: Path | None,
        **options: object,
    ) -> None:
        command(*arguments, credentials=Credentials(token, trusting(tls_ca, tls_cert)), **options)

    return wrapper


def trusting(ca: Path | None, certificate: Path | None) -> ssl.SSLContext:
    """Make a TLS context of an authority and a client certificate.  Raises: ConfigError."""
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
    except (OSError, ssl.SSLError) as error:
        files = " or ".join(str(file) for file in (ca, certificate) if file is not None)
        raise ConfigError(f"cannot use the certificates in {files}: {error}") from error
    return context
