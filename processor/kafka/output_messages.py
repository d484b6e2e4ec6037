"""What reads the messages of an output's topic, with the schema registry that its format needs."""

from collections.abc import Mapping

from ikebana.codecs.formats import OUTPUT_FORMATS, SINGLE_VALUE_FORMATS
from ikebana.errors import ConfigError
from ikebana.processor.base.output_reader import OutputReader
from ikebana.processor.kafka import client


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
