"""Fetch what the tests of change data need, so that none of them waits for it."""

from cdc import canal, connect, maxwell, registry, rest_catalog
from cdc.fetched import Unavailable, java
from ikebana.errors import IkebanaError
from ikebana.processor.kafka.broker import jars


def main() -> None:
    """Fetch one after the other: Ivy has one cache for all; tell what cannot be had here."""
    for fetch in (
        lambda: jars(java()),
        registry.installed,
        lambda: connect.installed("mariadb"),
        lambda: connect.installed("postgres"),
        maxwell.installed,
        canal.installed,
        rest_catalog.installed,
    ):
        try:
            fetch()
        except (Unavailable, IkebanaError) as reason:
            print(str(reason).splitlines()[0])


if __name__ == "__main__":
    main()
