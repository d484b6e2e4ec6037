"""The results of `cluster.py` as Markdown: figures by place, with ratios, and CPU by part."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markdown import cell, table

Found = Mapping[str, Any]


def tables(on: Sequence[str], found: Sequence[Found]) -> list[str]:
    """The lines of both tables, with the places as columns; ratios are to the first of them."""
    heads = [
        "part",
        "figure",
        *map(_named, on),
        *(f"{_named(of)} / {_named(on[0])}" for of in on[1:]),
    ]
    lines = table(heads, _figures(on, found))
    heads = ["CPU", "process", *map(_named, on)]
    lines += ["", *table(heads, _parts(on, found))]
    if wrong := [f"{each['part']} on {each['place']}" for each in found if not each["exact"]]:
        lines += ["", f"Not exact: {', '.join(wrong)}."]
    return lines


def _figures(on: Sequence[str], found: Sequence[Found]) -> Iterator[list[str]]:
    for part in dict.fromkeys(each["part"] for each in found):
        of_part = [each for each in found if each["part"] == part]
        for figure in dict.fromkeys(name for each in of_part for name in each["figures"]):
            by_place = {place: _by_round(of_part, place, figure) for place in on}
            base = by_place[on[0]]
            row = [part, figure, *(_spread([*by_place[place].values()]) for place in on)]
            for place in on[1:]:
                both = by_place[place].keys() & base.keys()
                ratios = [by_place[place][at] / base[at] for at in sorted(both) if base[at]]
                row.append(_spread(ratios))
            yield row


def _by_round(found: Sequence[Found], place: str, figure: str) -> dict[int, float]:
    return {
        each["round"]: each["figures"][figure]
        for each in found
        if each["place"] == place and figure in each["figures"]
    }


def _parts(on: Sequence[str], found: Sequence[Found]) -> Iterator[list[str]]:
    """The medians of rounds."""
    for part in dict.fromkeys(each["part"] for each in found if each["cpu"]):
        of_part = [each for each in found if each["part"] == part]
        for process in dict.fromkeys(name for each in of_part for name in each["cpu"]):
            by_place = (
                [each["cpu"].get(process, 0.0) for each in of_part if each["place"] == place]
                for place in on
            )
            yield [part, process, *(cell(statistics.median(of)) if of else "" for of in by_place)]


def _named(place: str) -> str:
    if place.isdigit():
        return f"{place} executor{'s' if place != '1' else ''}"
    return {"local": "one machine"}.get(place, place)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    if len(values) == 1:
        return cell(values[0])
    return ", ".join(map(cell, (min(values), statistics.median(values), max(values))))
