"""Read messages of outputs with one value for each key back as updates."""

from collections.abc import Iterable

from ikebana.codecs import diff
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import OUTPUT_FORMATS
from ikebana.errors import SourceError
from ikebana.processor.base.diff_reader import PlacedUpdate

Headers = Iterable[tuple[str, bytes | str | None]] | None


class OutputReader:
    """Reads the messages of one topic, those of each partition in order."""

    def __init__(self, topic: str, form: str) -> None:
        self._topic = topic
        self._form = form
        codec = OUTPUT_FORMATS[form].codec
        assert codec is not None, f"{form} is not read back"
        self._changes = codec().reader()

    def read(
        self, at: tuple[int, int], key: bytes | None, value: bytes | None, headers: Headers
    ) -> list[PlacedUpdate]:
        """Decode a message at (partition, offset) to its updates.

        Raises:
            SourceError: the message is not in this format.
        """
        try:
            time = diff.read_time(headers)
            changes = self._changes(key, value)
        except DecodeError as error:
            raise SourceError(
                f"cannot read {self._topic}[{at[0]}]@{at[1]} as {self._form}: {error.reason}",
                hint="--format says how the topic is written.",
            ) from None
        return [PlacedUpdate(key, changed, time, count, *at) for changed, count in changes]
