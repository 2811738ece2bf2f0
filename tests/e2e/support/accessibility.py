"""Rules of accessibility that a script checks in a page: a part of WCAG 2.2 AA.

The script returns a JSON list of violations:

- 1.1.1, 4.1.2: controls, links, images and dialogs have a name
- 1.3.1: one ``main``, one ``h1`` (or a dialog's heading), no skipped heading level, tables with
  header cells that have a scope, labels for fields
- 1.4.3: contrast of text of at least 4.5 (3 for large text) against the colour behind it
- 2.1.1, 2.4.3: no positive tabindex; regions that scroll can be reached by keyboard
- 2.4.1, 2.4.2, 3.1.1: a skip link, a title, a language
- 2.5.8: targets of at least 24 CSS pixels, except links in text
- 4.1.1: ids are unique
"""

from pathlib import Path

CHECK = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
"""An expression: the JSON list of violations of the page."""
