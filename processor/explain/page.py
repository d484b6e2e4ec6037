"""Render an explanation as one self-contained HTML page, which is also XML."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from ikebana.processor.explain import estimates
from ikebana.processor.explain.estimates import Work
from ikebana.processor.explain.explanation import ALL, MEANINGS, Cost, Explanation
from ikebana.processor.explain.pictures import FONT, drawing
from ikebana.processor.explain.words import figure

# The smallest scale of a picture.
_LEAST = 0.66
_STYLE = f"""
:root {{ color-scheme: light dark; --ground: #ffffff; --text: #1b1f24; --faint: #57606a;
  --line: #d0d7de }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: #0d1117; --text: #e6edf3; --faint: #9aa5b1; --line: #30363d }}
}}
body {{ margin: 2rem auto; max-width: 140rem; padding: 0 1.5rem; line-height: 1.5;
  background: var(--ground); color: var(--text); font-family: system-ui, sans-serif }}
h1 {{ margin-bottom: 0; overflow-wrap: anywhere }}
h2 {{ margin-top: 2rem; border-bottom: 1px solid var(--line) }}
.faint {{ color: var(--faint) }}
.picture {{ overflow-x: auto }}
.picture svg {{ display: block; width: 100%; height: auto }}
li, td, dd {{ overflow-wrap: anywhere }}
li {{ max-width: 60rem; margin: 0.3rem 0 }}
table {{ border-collapse: collapse }}
th, td {{ padding: 0.25rem 1rem 0.25rem 0; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top }}
.number {{ text-align: right; font-variant-numeric: tabular-nums }}
.sum td {{ font-weight: bold }}
code, .settings td {{ font-family: {FONT}; font-size: 0.9em }}
"""


def html(explanation: Explanation) -> str:
    """Render the page, with a line end at its end."""
    return "\n".join(_lines(explanation)) + "\n"


def _lines(explanation: Explanation) -> Iterator[str]:
    name = escape(explanation.name)
    yield "<!DOCTYPE html>"
    yield '<html lang="en" xmlns="http://www.w3.org/1999/xhtml">'
    yield "<head>"
    yield '<meta charset="utf-8" />'
    yield '<meta name="viewport" content="width=device-width" />'
    yield f"<title>{name}: the plan</title>"
    yield f"<style>{_STYLE}</style>"
    yield "</head>"
    yield "<body>"
    yield f"<h1>{name}</h1>"
    yield (
        f'<p class="faint">plan <code>{escape(explanation.fingerprint)}</code>; '
        f"time: {escape(explanation.time)}</p>"
    )
    for graph in (explanation.run, explanation.written):
        yield f"<h2>{escape(graph.title.capitalize())}</h2>"
        width, xml = drawing(graph, graph.title)
        yield f'<div class="picture"><div style="{_fitting(width)}">{xml}</div></div>'
    yield "<h2>What was pushed</h2>"
    yield from _list(explanation.pushed)
    yield "<h2>What was not pushed</h2>"
    yield from _list(explanation.not_pushed)
    if explanation.warnings:
        yield "<h2>What could cost less</h2>"
        yield from _list(explanation.warnings)
    yield "<h2>What it costs</h2>"
    yield from _table(explanation.costs, MEANINGS, explanation.sharing)
    yield f"<h2>{escape(_capitalized(estimates.TITLE))}</h2>"
    yield from _table(explanation.estimates, estimates.MEANINGS)
    yield "<h2>Settings</h2>"
    yield '<table class="settings">'
    for key, value in explanation.settings:
        yield f"<tr><th>{escape(key)}</th><td>{escape(value)}</td></tr>"
    yield "</table>"
    yield "</body>"
    yield "</html>"


def _fitting(width: int) -> str:
    """Fit a picture to the page's width, but not so small that its text cannot be read."""
    return f"max-width: {width}px; min-width: {width * _LEAST:.0f}px"


def _list(sentences: Iterable[str]) -> Iterator[str]:
    items = [f"<li>{escape(sentence)}</li>" for sentence in sentences]
    if not items:
        yield '<p class="faint">Nothing.</p>'
        return
    yield "<ul>"
    yield from items
    yield "</ul>"


def _table(
    rows: Sequence[Cost] | Sequence[Work], meanings: Mapping[str, str], more: Iterable[str] = ()
) -> Iterator[str]:
    yield "<table>"
    names = rows[0].heads() if rows else ()
    heads = "".join(f'<th class="number">{escape(name)}</th>' for name in names)
    yield f"<thead><tr><th></th>{heads}</tr></thead>"
    yield "<tbody>"
    for part, *numbers in rows:
        cells = "".join(f'<td class="number">{figure(number)}</td>' for number in numbers)
        mark = ' class="sum"' if part == ALL else ""
        yield f"<tr{mark}><td>{escape(part)}</td>{cells}</tr>"
    yield "</tbody>"
    yield "</table>"
    yield "<ul>"
    for line in more:
        yield f"<li>{escape(line)}.</li>"
    for word, meaning in meanings.items():
        yield f"<li>{escape(_capitalized(word))}: {escape(meaning)}.</li>"
    yield "</ul>"


def _capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]
