"""Examples in docstrings that need a server or a broker: a test runs them on its own."""

import textwrap
from collections.abc import Callable, Mapping
from typing import Any


def run_example(of: Callable[..., Any], names: Mapping[str, str], **given: Any) -> dict[str, Any]:
    """Run the example of a docstring, with `names` replaced; what its variables are after it.

    An example is the indented block after a line that is "An example::".  Every name must be in
    it, so that a changed example does not run on what it names by chance.
    """
    _, found, rest = textwrap.dedent(f"    {of.__doc__}").partition("An example::\n")
    assert found, f"{of.__qualname__} has no example"
    lines = []
    for line in rest.lstrip("\n").splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line)
    code = textwrap.dedent("\n".join(lines))
    for name, instead in names.items():
        assert name in code, f"the example of {of.__qualname__} does not name {name}"
        code = code.replace(name, instead)
    variables: dict[str, Any] = dict(given)
    exec(compile(code, of.__qualname__, "exec"), variables)
    return variables
