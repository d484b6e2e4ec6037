"""How Debezium names the topics of a database: of its tables, and of its transactions."""

from collections.abc import Iterable

from ikebana.errors import ConfigError

_SUFFIX = ".transaction"


def collections_of(topics: Iterable[str], transaction_topic: str) -> frozenset[str]:
    """The collections that have their changes in these topics, as topics spell them.

    Topics are `prefix.collection`, the transaction topic is `prefix.transaction`.

    >>> sorted(collections_of(["shop.public.orders", "shop.public.items"], "shop.transaction"))
    ['public.items', 'public.orders']

    Raises:
        ConfigError: topics have other names.
    """
    prefix = transaction_topic.removesuffix(_SUFFIX) + "."
    if not transaction_topic.endswith(_SUFFIX) or prefix == ".":
        raise ConfigError(
            f'cannot tell whose transactions are in topic "{transaction_topic}": '
            f'its name does not end in "{_SUFFIX}"',
            hint="Leave the connector's topic.transaction at its default.",
        )
    collections = set()
    for topic in topics:
        if not topic.startswith(prefix) or topic == prefix:
            raise ConfigError(
                f'cannot tell which table is in topic "{topic}": '
                f'its name does not begin with "{prefix}"',
                hint="Read the topics as the connector names them, without routing.",
            )
        collections.add(topic.removeprefix(prefix))
    return frozenset(collections)
