"""How long the history of a served collection is kept."""

import pytest

from ikebana.errors import ConfigError
from ikebana.serving.arrangement import Retention, parsed_retention

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", Retention(250, is_duration=True)),
        ("90s", Retention(90_000, is_duration=True)),
        ("30m", Retention(1_800_000, is_duration=True)),
        ("30 min", Retention(1_800_000, is_duration=True)),
        ("7d", Retention(7 * 86_400_000, is_duration=True)),
        ("12", Retention(12, is_duration=False)),
    ],
)
def test_a_retention_is_a_duration_or_a_number_of_times(text: str, expected: Retention) -> None:
    """A unit makes the difference."""
    assert parsed_retention(text) == expected


@pytest.mark.parametrize("text", ["", "h", "-1h", "1w", "1.5h", "1h30m"])
def test_anything_else_is_refused(text: str) -> None:
    """With the text, for who shows it to the user."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the text is compared
        parsed_retention(text)
    assert str(refusal.value) == text


def test_a_duration_is_kept_behind_the_greatest_closed_time() -> None:
    """Which is the one before the frontier."""
    assert parsed_retention("1h").since(NOW, "x") == NOW - 1 - 3_600_000
    assert parsed_retention("10").since(100, "x") == 89


def test_a_duration_of_times_that_are_no_milliseconds_is_refused() -> None:
    """The remedy is a number of times."""
    with pytest.raises(ConfigError, match='"things": its times are not milliseconds') as refusal:
        parsed_retention("1h").since(42, "things")
    assert "--retain 100000" in str(refusal.value)
