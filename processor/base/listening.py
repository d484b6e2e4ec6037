"""Where and how to answer over HTTP, for servers and for runs: addresses, TLS, and who may ask."""

import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

import msgspec

from ikebana.errors import ConfigError

# Names by which a browser on this machine reaches a server of this machine.
_OURS = ("localhost", "")


class Address(NamedTuple):
    """Where to listen; port 0 means any that is free."""

    host: str
    port: int


class Tls(NamedTuple):
    """Files in PEM: our certificate and its key, and the authority of clients' certificates.

    Without `key` the certificate's file has the key.  Without `client_ca` clients need no
    certificate.
    """

    certificate: Path
    key: Path | None = None
    client_ca: Path | None = None


class Listening(NamedTuple):
    """Where and how to answer; `probes` is a separate address for probes and metrics.

    The probes' address speaks plain HTTP, for clients without a certificate.
    """

    address: Address
    tls: Tls | None = None
    probes: Address | None = None


class Problem(msgspec.Struct, omit_defaults=True):
    """Why there is no answer, and the remedy; the bounds of readable times, if these matter."""

    error: str
    hint: str | None = None
    since: int | None = None
    upper: int | None = None


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Read the files.  Raises: ConfigError, if they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A password would be asked for on the terminal.
        context.load_cert_chain(tls.certificate, tls.key, password="")
    except (OSError, ssl.SSLError, ValueError) as error:
        files = f"{tls.certificate}" + ("" if tls.key is None else f" and {tls.key}")
        raise ConfigError(
            f"cannot use the certificate {files}: {error}",
            hint="Give PEM files of a certificate and its key, which has no password.",
        ) from error
    if tls.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"cannot use the certificates {tls.client_ca}: {error}",
                hint="Give a PEM file of those who sign the certificates of clients.",
            ) from error
    return context


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address to listen on."""
    return host == "localhost" or host.startswith("127.") or host == "::1"


def names_address(host: str) -> bool:
    """Whether the header Host of a request has an address or `localhost`, and no other name.

    A web page can make a name of its own point to a server of this machine; with an address it
    cannot.
    """
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name in _OURS:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
