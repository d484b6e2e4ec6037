"""What a codec says when it meets bytes that it cannot read."""


class DecodeError(Exception):
    """A message cannot be decoded; the reason names field and type, never the payload.

    It is caught where a record is known by topic, partition and offset, and becomes a
    record of the error topic: data, not a stop.
    """

    def __init__(self, codec: str, reason: str, *, key: bytes | None = None) -> None:
        super().__init__(f"could not decode {codec}: {reason}")
        self.codec = codec
        self.reason = reason
        self.key = key
        """The canonical key of the row, where it could be read although the rest could not."""
