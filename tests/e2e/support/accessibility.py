"""Rules of accessibility that scripts check in a page: axe-core's for WCAG 2.2 A and AA, and ours.

Our script returns a JSON list of violations of rules that axe-core leaves out, or has as advice:

- 1.1.1, 4.1.2: controls, links, images and dialogs have a name
- 1.3.1: one ``main``, one ``h1`` (or a dialog's heading), no skipped heading level, tables with
  header cells that have a scope, labels for fields
- 1.4.3: contrast of text of at least 4.5 (3 for large text) against the colour behind it
- 2.1.1, 2.4.3: no positive tabindex; regions that scroll can be reached by keyboard
- 2.4.1, 2.4.2, 3.1.1: a skip link, a title, a language
- 2.5.8: targets of at least 24 CSS pixels, except links in text
- 4.1.1: ids are unique
"""

import importlib.util
import json
from pathlib import Path

from tests.e2e.support.browser import Page

CHECK = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
"""An expression: the JSON list of violations of the page."""
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
AXE_PACKAGE = "axe_playwright_python"
"""Ships axe-core; it is not imported, since that needs its browser."""
RUN = """
axe.run(document, {runOnly: {type: "tag", values: TAGS}}).then(found => JSON.stringify(
  found.violations.flatMap(rule => rule.nodes.map(it =>
    `${rule.id}: ${it.html.slice(0, 200)}: ${it.any.map(why => why.message).join(" ")}`)),
))
""".replace("TAGS", json.dumps(TAGS))


async def violations(page: Page) -> list[str]:
    """What breaks a rule in the open page, each with its elements."""
    await page.run(f"{_axe()}; 0")
    own: list[str] = json.loads(await page.run(CHECK))
    found: list[str] = json.loads(await page.run(RUN))
    return own + found


def _axe() -> str:
    """axe-core's script."""
    spec = importlib.util.find_spec(AXE_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")
