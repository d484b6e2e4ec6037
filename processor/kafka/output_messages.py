"""What reads the messages of an output's topic, with the schema registry that its format needs."""

from collections.abc import Iterable, Mapping

from ikebana.codecs import diff
from ikebana.codecs.avro_back import InsertedRows
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import OUTPUT_FORMATS, SINGLE_VALUE_FORMATS
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.base.diff_reader import PlacedUpdate
from ikebana.processor.kafka import client

# Read messages of outputs with one value for each key back as updates.
#
# Those by schemas of a registry first become what they were made of, keys and values in JSON.

Headers = Iterable[tuple[str, bytes | str | None]] | None


class OutputReader:
    """Reads the messages of one topic; the messages of each partition must come in order."""

    def __init__(self, topic: str, form: str, schemas: Schemas | None = None) -> None:
        self._topic = topic
        self._form = form
        traits = OUTPUT_FORMATS[form]
        assert traits.codec is not None, f"{form} is not read back"
        self._changes = traits.codec().reader()
        self._written = None
        if traits.schemas is not None:
            assert schemas is not None, f"{form} is read without a registry"
            back = traits.schemas().back
            self._written = back(schemas, "key"), back(schemas, "value"), InsertedRows()

    def read(
        self, at: tuple[int, int], key: bytes | None, value: bytes | None, headers: Headers
    ) -> list[PlacedUpdate]:
        """Decode a message at (partition, offset) to its updates.

        Raises:
            SourceError: the message is not in this format.
        """
        try:
            time = diff.read_time(headers)
            if self._written is None:
                changes = self._changes(key, value)
            else:
                keys, values, rows = self._written
                key = keys.of(key)
                decoded = self._changes(key, values.of(value))
                changes = [rows.change(key, *change) for change in decoded]
        except DecodeError as error:
            raise SourceError(
                f"cannot read {self._topic}[{at[0]}]@{at[1]} as {self._form}: {error.reason}",
                hint="--format says how the topic is written.",
            ) from None
        return [PlacedUpdate(key, changed, time, count, *at) for changed, count in changes]


def output_reader(settings: Mapping[str, str], topic: str, form: str) -> OutputReader | None:
    """The reader of messages of keys; None for a format of updates, which have diffs.

    Raises:
        ConfigError: the format needs a registry, and the settings name none.
    """
    if form not in SINGLE_VALUE_FORMATS:
        return None
    if not OUTPUT_FORMATS[form].in_registry:
        return OutputReader(topic, form)
    registry = client.of_registry(settings)
    if "url" not in registry:
        raise ConfigError(
            f'cannot read "{topic}": the format {form} needs a schema registry',
            hint="Set schema.registry.url among the settings of the client (`--config`), or name "
            "the pipeline that writes the topic (`--pipeline`), whose registry is used.",
        )
    # Its client takes a while to import, and few need it.
    from ikebana.processor.kafka.registry import Registry

    return OutputReader(topic, form, Registry(registry))
