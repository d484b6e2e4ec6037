"""Settings that are given as data: sections of the pipeline file that say where and how."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ikebana.arrangements.errors import ConfigError
from ikebana.processor.configuring.pipeline import kafka_values
from ikebana.processor.configuring.pipeline_file import SettingsPart, worded
from ikebana.processor.configuring.settings import Settings, SettingsError
from ikebana.processor.planning.plan import Plan
from ikebana.processor.reading.codec_of import needs_registry


def given_settings(
    given: Mapping[str, Any],
    plan: Plan,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | None = None,
) -> Settings:
    """The settings for a plan; the options win over what is given.

    Raises:
        ConfigError: with every problem.
    """
    try:
        part = SettingsPart.model_validate(given)
    except ValidationError as error:
        problems = [
            (".".join(map(str, each["loc"])), worded(each))
            for each in error.errors(include_url=False)
        ]
        raise _refused(plan, problems) from None
    problems = list(kafka_values(part))
    registry = [i.name for i in plan.inputs if needs_registry(i)]
    if registry and not part.registry.get("url"):
        problems.append(
            ("registry.url", f"is missing: input {registry[0]!r} is read by its schemas")
        )
    try:
        found = part.settings(bootstrap_servers=bootstrap_servers, checkpoint=checkpoint)
    except SettingsError as error:
        raise _refused(plan, [*error.problems, *problems]) from None
    if problems:
        raise _refused(plan, problems)
    return found


def _refused(plan: Plan, problems: list[tuple[str, str]]) -> ConfigError:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    listed = [f"  {path}: {problem}" for path, problem in problems]
    return ConfigError("\n".join([f'settings of pipeline "{plan.name}" have {count}:', *listed]))
