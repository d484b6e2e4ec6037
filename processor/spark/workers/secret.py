"""The secret by which the processes of a run know each other on different machines.

It is a random text.  For a run that encrypts, it is a private key with a certificate of its own,
which no authority has signed: all processes of the run have both, and trust nothing else.
"""

import base64
import datetime
import functools
import secrets
import ssl
import tempfile

_ENCRYPTS = "tls:"
_NAME = "ikebana"
# A run may go on for years, and clocks of machines differ.
_LASTS = datetime.timedelta(days=3_650)
_CLOCKS_DIFFER_BY = datetime.timedelta(days=1)


def new(*, encrypts: bool) -> str:
    """Return a new secret, in one line; with it, connections are encrypted if `encrypts`."""
    return _ENCRYPTS + base64.b64encode(_pem()).decode() if encrypts else secrets.token_hex(32)


def contexts(secret: str) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """Return the TLS contexts of servers and of clients; None if the secret does not encrypt."""
    return _contexts(secret) if secret.startswith(_ENCRYPTS) else None


@functools.lru_cache(maxsize=1)
def _contexts(secret: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    pem = base64.b64decode(secret.removeprefix(_ENCRYPTS))
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A server waits for the end of a connection: nothing that the client has to read comes first.
    server.num_tickets = 0
    # OpenSSL reads keys from files only.  This one is readable for its owner, and goes at once.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem)
        file.flush()
        server.load_cert_chain(file.name)
        client.load_verify_locations(file.name)
    # Executors come and go at any address; what they prove is the key of the run.
    client.check_hostname = False
    return server, client


def _pem() -> bytes:
    # Imported here, because only runs that encrypt need it.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER_BY)
        .not_valid_after(now + _LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(pem, form, plain) + certificate.public_bytes(pem)
