"""The error of a codec at bytes that it cannot decode."""


class DecodeError(Exception):
    """A message cannot be decoded; the reason names field and type, never the payload.

    The caller knows topic, partition and offset, and makes a record of the error topic.  So an
    undecodable message does not stop the pipeline.
    """

    def __init__(self, codec: str, reason: str, *, key: bytes | None = None) -> None:
        super().__init__(f"could not decode {codec}: {reason}")
        self.codec = codec
        self.reason = reason
        self.key = key
        """The canonical key of the row, if that could be decoded although the rest could not."""
