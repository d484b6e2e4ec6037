"""Options of HTTP: of servers (addresses, tokens, TLS), and of commands that connect to one.

Numbers are finite, as times in seconds have to be.
"""

import functools
import math
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ikebana.errors import ConfigError
from ikebana.processor.base.listening import Address, Listening, Tls, is_local
from ikebana.processor.base.log_lines import note
from ikebana.processor.cli.connection import Command, with_options

if TYPE_CHECKING:
    from ikebana.processor.watching.guard import AccessLimits

_FILE = click.Path(path_type=Path)


class Number(click.FloatRange):
    """A finite number within bounds; click's own type accepts NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the argument, or refuse it as click refuses what is no number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return number


def address(value: str) -> tuple[str, int]:
    """Read HOST:PORT."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 0xFFFF:
        raise click.BadParameter(f'"{value}" is no HOST:PORT')
    return host.removeprefix("[").removesuffix("]"), int(port)


def ready_within(meaning: str) -> Callable[[Command], Command]:
    """Make the option that says up to which delay /ready answers yes; `meaning` says of what."""
    return click.option(
        "--ready-within",
        metavar="SECONDS",
        type=Number(min=0, min_open=True),
        default=60.0,
        envvar="IKEBANA_READY_WITHIN",
        help=f"/ready answers yes {meaning}. [env: IKEBANA_READY_WITHIN; default: 60]",
    )


class AccessOptions(NamedTuple):
    """The values of the options that say who may ask a server, and how."""

    token_file: Path | None
    anyone: bool
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    probes: tuple[str, int] | None

    def limits(self, rate: float | None = None) -> "AccessLimits":
        """Read the file of tokens.  Raises: ConfigError."""
        # Imported here, since `--help` does not need it.
        from ikebana.processor.watching import guard

        tokens = guard.Access() if self.token_file is None else guard.read_access(self.token_file)
        return guard.AccessLimits(tokens, rate, self.anyone or self.tls_client_ca is not None)


def access_options(tokens: str, probes: str, *, variables: bool) -> Callable[[Command], Command]:
    """Make the options, which a command gets as `access`; `tokens` and `probes` are help texts.

    With `variables` each option can also be set by an environment variable.
    """

    def option(name: str, text: str, **how: object) -> Callable[..., Command]:
        variable = f"IKEBANA_{name[2:].upper().replace('-', '_')}"
        if variables:
            how["envvar"] = variable
            text = f"{text} [env: {variable}]"
        return click.option(name, help=text, **how)  # type: ignore[arg-type]

    options = (
        option("--token-file", tokens, metavar="FILE", type=_FILE),
        option(
            "--anyone",
            "Answer without tokens at addresses that other machines reach.",
            is_flag=True,
        ),
        option(
            "--tls-cert", "Answer over TLS with this certificate; PEM.", metavar="FILE", type=_FILE
        ),
        option(
            "--tls-key",
            "The key of the certificate, if --tls-cert has none; PEM.",
            metavar="FILE",
            type=_FILE,
        ),
        option(
            "--tls-client-ca",
            "Clients need a certificate that one of these authorities has signed; PEM.",
            metavar="FILE",
            type=_FILE,
        ),
        option("--probes", probes, metavar="HOST:PORT", type=address),
    )

    def added(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(*arguments: object, **values: Any) -> None:
            access = AccessOptions(**{name: values.pop(name) for name in AccessOptions._fields})
            command(*arguments, access=access, **values)

        return with_options(*options)(wrapper)

    return added


def listening(http: tuple[str, int], access: AccessOptions) -> Listening:
    """Check the options of a server; warn if tokens travel without TLS.

    Raises: ConfigError, if an address that others reach has no access control and no --anyone.
    """
    token_file, anyone, tls_cert, tls_key, tls_client_ca, probes = access
    if tls_cert is None and (tls_key or tls_client_ca):
        raise ConfigError("cannot serve: --tls-key and --tls-client-ca need --tls-cert")
    tls = None if tls_cert is None else Tls(tls_cert, tls_key, tls_client_ca)
    host = http[0]
    if not is_local(host):
        shown = host or "all addresses"
        if not (token_file or tls_client_ca or anyone):
            raise ConfigError(
                f"cannot serve on {shown}: everybody who reaches it could read everything",
                hint="Give --token-file or --tls-client-ca, or --anyone if that is meant.",
            )
        if tls is None:
            note(
                f"warning: {shown} is answered without TLS, so who sees the network can read "
                "tokens and data; give --tls-cert, or put it behind something that has TLS"
            )
    return Listening(Address(*http), tls, None if probes is None else Address(*probes))


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
