"""What exchanges is not counted as read again."""

from ikebana.processor.base.rows import KeyedUpdate, Tick, pack, size_of, unpack
from ikebana.processor.base.sharding import exchange_chunks


def test_what_an_exchange_brings_is_no_record() -> None:
    """The records that it comes of were counted when they were read."""
    ((_, row),) = exchange_chunks({"op": [KeyedUpdate(b"1", b"{}", 1, 1)]}, 1)

    sent = unpack(pack(row))

    assert not isinstance(sent, Tick)
    assert (size_of(sent), len(row.keys)) == (0, 1)
