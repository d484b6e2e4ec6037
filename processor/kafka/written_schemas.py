"""The schemas of outputs in the registry: registered at a start, and checked by preflight."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ikebana.codecs.output_messages import Ids
from ikebana.errors import ConfigError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.notices import Check, checked
from ikebana.processor.planning.outputs import shape_of
from ikebana.processor.planning.plan import Output, Plan

if TYPE_CHECKING:
    from ikebana.processor.kafka.registry import Registry

_LOOK_S = 5.0
_REMEDY = (
    "A registry takes columns that are added or left out, but by default no other types, and no "
    "other keys. Name another topic for the output, or another namespace by `record`, or set the "
    "compatibility of the subject."
)


class Subject(NamedTuple):
    """A subject, and the schema that an output has for it, of the kind of its format."""

    name: str
    schema: str
    kind: str


def subjects_of(plan: Plan, output: Output) -> tuple[Subject, Subject]:
    """The subjects of an output's keys and of its values."""
    assert output.traits.schemas is not None, f"{output.format} has no schemas"
    shape, codec = shape_of(plan, output), output.traits.schemas()
    names = f"{output.topic}-key", f"{output.topic}-value"
    if output.subjects != "topic":
        # A key without a record is refused with the plan.
        names = codec.names(shape)
        if output.subjects == "topic-record":
            names = f"{output.topic}-{names[0]}", f"{output.topic}-{names[1]}"
    of_key, of_value = codec.schemas(shape)
    return Subject(names[0], of_key, codec.KIND), Subject(names[1], of_value, codec.KIND)


def registered(plan: Plan, settings: Mapping[str, str]) -> dict[str, Ids]:
    """Register the schemas of outputs in Avro, and return their ids by output.

    Raises:
        ConfigError: the registry does not take a schema.
        SourceError: it is away, refuses us, or is no registry.
    """
    outputs = [output for output in plan.outputs if output.traits.in_registry]
    registry = _registry(settings) if outputs else None
    result = {}
    for output in outputs:
        assert registry is not None
        ids = []
        for subject in subjects_of(plan, output):
            try:
                ids.append(registry.register(*subject))
            except ConfigError as error:
                raise ConfigError(
                    f'cannot write output "{output.name}" under the subject '
                    f'"{subject.name}": {error.message}',
                    hint=_REMEDY,
                ) from error
        result[output.name] = Ids(*ids)
    return result


def checks(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Check that the registry would take the schemas of all outputs; it has to answer."""
    outputs = [output for output in plan.outputs if output.traits.in_registry]
    registry = _registry(settings.registry, _LOOK_S) if outputs else None
    for output in outputs:
        assert registry is not None
        for subject in subjects_of(plan, output):
            yield checked(f'subject "{subject.name}"', partial(_tried, registry, subject))


def _tried(registry: "Registry", subject: Subject) -> str:
    if registry.takes(*subject):
        return "its newest schema and that of the output are compatible, or there is none yet"
    raise ConfigError(
        "the output's schema is not compatible with the newest one that is registered",
        hint=_REMEDY,
    )


def _registry(settings: Mapping[str, str], patience_s: float | None = None) -> "Registry":
    # Its client takes a while to import, and few need it.
    from ikebana.processor.kafka.registry import Registry

    return Registry(settings) if patience_s is None else Registry(settings, patience_s)
