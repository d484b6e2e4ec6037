"""What everybody needs of a page: names, keyboard, focus, contrast, headings."""

from itertools import pairwise
from typing import Any

from playwright.sync_api import Page

_CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex='0']"

# The controls that can be used now, in their order, each with a mark.
_MARKED = f"""() => {{
  const modal = document.querySelector("dialog[open]");
  const within = modal ?? document;
  const found = [...within.querySelectorAll("{_CONTROLS}")].filter(
    (each) => !each.disabled && each.checkVisibility({{visibilityProperty: true}}));
  found.forEach((each, at) => (each.dataset.control = at));
  return found.map((each) => each.outerHTML.slice(0, 120));
}}"""
_FOCUSED = """() => {
  const each = document.activeElement;
  const style = getComputedStyle(each);
  return {
    control: each.dataset?.control ?? null,
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1,
    seen: each.getBoundingClientRect().width > 0,
  };
}"""
# The texts whose contrast with what they stand on is too small, by WCAG 2.1, level AA.
_FAINT = """() => {
  const part = (c) => (c /= 255, c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const rgb = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    return found.length < 4 || found[3] > 0 ? found.slice(0, 3) : null;
  };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (element) => {
    const box = element.closest?.("[data-box]");
    if (box) return rgb(getComputedStyle(box.querySelector("rect")).fill);
    for (let each = element; each; each = each.parentElement) {
      const found = rgb(getComputedStyle(each).backgroundColor);
      if (found) return found;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const wrong = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.disabled) continue;
    if (!element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const ink = rgb(element instanceof SVGElement ? style.fill : style.color);
    const big = parseFloat(style.fontSize) >= 24;
    const found = contrast(ink, ground(element));
    if (found < (big ? 3 : 4.5)) wrong.push(`${walker.currentNode.data}: ${found.toFixed(2)}`);
  }
  return wrong;
}"""
_HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4")]
  .filter((each) => each.checkVisibility()).map((each) => Number(each.tagName[1]))"""


def unnamed(page: Page) -> list[str]:
    """Find the controls without a name, as the browser tells screen readers."""
    session = page.context.new_cdp_session(page)
    tree: dict[str, Any] = session.send("Accessibility.getFullAXTree")
    session.detach()
    return [
        node["role"]["value"]
        for node in tree["nodes"]
        if not node["ignored"]
        and any(each["name"] == "focusable" and each["value"]["value"] for each in _of(node))
        and node["role"]["value"] not in ("RootWebArea", "main")
        and not node.get("name", {}).get("value", "").strip()
    ]


def _of(node: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.get("properties", [])
    return found


def unreached(page: Page) -> list[str]:
    """Press Tab through a page; return the controls that it has not reached, or without a ring."""
    controls: list[str] = page.evaluate(_MARKED)
    page.evaluate("document.activeElement.blur()")
    left = set(range(len(controls)))
    wrong = []
    # The browser's own controls, such as scrolling regions, take some more.
    for _ in range(len(controls) + 30):
        if not left:
            break
        page.keyboard.press("Tab")
        found = page.evaluate(_FOCUSED)
        if found["control"] is None:
            continue
        at = int(found["control"])
        if at in left and not (found["ring"] and found["seen"]):
            wrong.append(f"cannot be seen: {controls[at]}")
        left.discard(at)
    return wrong + [f"not reached: {controls[at]}" for at in sorted(left)]


def faint(page: Page) -> list[str]:
    """Find the texts that are too faint to read for some."""
    found: list[str] = page.evaluate(_FAINT)
    return found


def misplaced_headings(page: Page) -> bool:
    """Whether there is not one first heading, or a level is left out below another."""
    levels: list[int] = page.evaluate(_HEADINGS)
    skips = any(later > earlier + 1 for earlier, later in pairwise(levels))
    return levels.count(1) != 1 or levels[0] != 1 or skips
