"""Certificates for tests: an authority, and whom it has signed; all as PEM texts."""

import datetime
import ipaddress
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_VALID = datetime.timedelta(days=1)
# Since 3.13 Python takes no certificates without what RFC 5280 wants them to say.
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Certificate(NamedTuple):
    """What shows that its holder is `CN=name`."""

    name: str
    certificate: str
    key: str

    @property
    def principal(self) -> str:
        """Whom Kafka takes the holder for."""
        return f"User:CN={self.name}"


class Authority:
    """Signs certificates, for servers on this machine and for clients."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key.public_key())
        basic = x509.BasicConstraints(ca=True, path_length=0)
        made = (
            builder.add_extension(basic, critical=True)
            .add_extension(_SIGNS, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = made.public_bytes(Encoding.PEM).decode()

    def certified(self, name: str) -> Certificate:
        """A certificate of this name, which is also one for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = _builder(_named(name), self._name, key.public_key())
        by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = (
            builder.add_extension(here, critical=False)
            .add_extension(by, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Certificate(name, made.public_bytes(Encoding.PEM).decode(), private.decode())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
    )
