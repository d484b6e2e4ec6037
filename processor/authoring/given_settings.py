"""Settings from data: the sections of a pipeline file that say where and how it runs."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ikebana.errors import ConfigError
from ikebana.processor.authoring import deliver_part
from ikebana.processor.authoring.pipeline import kafka_values, registry_missing
from ikebana.processor.authoring.settings import Settings, SettingsError
from ikebana.processor.authoring.settings_part import SettingsPart
from ikebana.processor.authoring.wording import worded
from ikebana.processor.base.counting import counted
from ikebana.processor.planning.plan import Plan


def given_settings(
    sections: Mapping[str, Any],
    plan: Plan,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | None = None,
) -> Settings:
    """The settings for a plan; the options win over the sections.

    Raises:
        ConfigError: with every problem.
    """
    try:
        part = SettingsPart.model_validate(sections)
    except ValidationError as error:
        problems = [
            (".".join(map(str, each["loc"])), worded(each))
            for each in error.errors(include_url=False)
        ]
        raise _refused(plan, problems) from None
    problems = [
        *kafka_values(part),
        *registry_missing(plan, part.registry),
        *deliver_part.problems(part.deliver, plan),
    ]
    try:
        settings = part.settings(bootstrap_servers=bootstrap_servers, checkpoint=checkpoint)
    except SettingsError as error:
        raise _refused(plan, [*error.problems, *problems]) from None
    if problems:
        raise _refused(plan, problems)
    return settings


def _refused(plan: Plan, problems: list[tuple[str, str]]) -> ConfigError:
    count = counted(len(problems), "problem")
    listed = [f"  {path}: {problem}" for path, problem in problems]
    return ConfigError("\n".join([f'settings of pipeline "{plan.name}" have {count}:', *listed]))
