"""Secure an embedded broker: encrypted listeners, users, certificates and rights.

A secured broker has two listeners, both encrypted.  `SASL_SSL` is for users with passwords
(`PLAIN` and `SCRAM-SHA-512`), `SSL` for clients with a certificate that the authority has signed.
Only super users may do what no rule allows.  The broker itself is a super user: with its own
certificate it connects to itself, and we ask it whether it is ready.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ikebana.errors import BrokerError

SASL, CERTIFIED = "SASL_SSL", "SSL"
_MODULES = "org.apache.kafka.common.security"
# The minimum that Kafka accepts; these passwords guard only the topics of tests.
_SCRAM_ITERATIONS = 4096
_REQUEST_S = 30.0


@dataclass(frozen=True, slots=True)
class Security:
    """The users and certificates of an embedded broker; certificates and keys are PEM texts."""

    authority: str
    """The certificate of the authority that has signed the broker's and all clients'."""
    certificate: str
    """The broker's own, for 127.0.0.1."""
    key: str = field(repr=False)
    """The private key of that certificate, as PKCS #8 without a password."""
    principal: str
    """The principal of the broker's certificate in Kafka's form, such as `User:CN=broker`."""
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The passwords of users, by name."""
    super_users: Collection[str] = ()
    """More principals that may do everything, such as `User:admin`."""

    def settings(self) -> dict[str, str]:
        """Return the broker's settings, except the addresses of its listeners."""
        users = "".join(f" user_{name}={_quoted(word)}" for name, word in self.users.items())
        plain = f"{_MODULES}.plain.PlainLoginModule required{users};"
        scram = f"{_MODULES}.scram.ScramLoginModule required;"
        sasl = f"listener.name.{SASL.lower()}"
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join([self.principal, *self.super_users]),
            "listener.security.protocol.map": f"{SASL}:{SASL},{CERTIFIED}:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": CERTIFIED,
            "listener.name.controller.ssl.client.auth": "required",
            f"listener.name.{CERTIFIED.lower()}.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{sasl}.plain.sasl.jaas.config": plain,
            f"{sasl}.scram-sha-512.sasl.jaas.config": scram,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self.key,
            "ssl.keystore.certificate.chain": self.certificate,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority,
        }

    def own_client(self) -> dict[str, str]:
        """Return the settings of a client with the broker's certificate, which has all rights."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.pem": self.authority,
            "ssl.certificate.pem": self.certificate,
            "ssl.key.pem": self.key,
        }

    def admit(self, admin: AdminClient) -> None:
        """Create the users for SCRAM, whose credentials a broker keeps in its own data.

        Raises:
            BrokerError: the broker refuses them.
        """
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _SCRAM_ITERATIONS)
        upsertions = [
            UserScramCredentialUpsertion(name, how, word.encode())
            for name, word in self.users.items()
        ]
        for name, answer in (
            admin.alter_user_scram_credentials(upsertions).items() if upsertions else ()
        ):
            try:
                answer.result(_REQUEST_S)
            except KafkaException as error:
                said = error.args[0].str()
                raise BrokerError(f'could not make the user "{name}": {said}') from error


def _quoted(password: str) -> str:
    """Quote a value for JAAS."""
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
