"""Sphinx extension that adds generated parts and diagrams to pages."""

import json
import re
from pathlib import Path

import yaml
from sphinx.application import Sphinx

from stromboli.shared.jobspec import crds
from tools.docs import lifecycle_diagram, objects, rest, topics

DOCS = Path(__file__).parents[2] / "docs"
PLACE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
DRAWN = re.compile(r"^```mermaid\n(\w+).*?^```$", re.MULTILINE | re.DOTALL)
"""Mermaid blocks, which repository browsers render as diagrams; the site contains images
instead."""
ELSEWHERE = {
    "../cli/README.md": "strom.md",
    **{
        f"../services/{name}/README.md": f"services/{name}.md"
        for name in ("admission", "console", "controller", "history", "monitor", "scheduler")
    },
}
"""Files outside docs/ that have a page on the site."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension with Sphinx. It supports parallel reading."""
    app.connect("source-read", lambda app, name, source: complete(source))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def complete(source: list[str]) -> None:
    """Replace the text of a page by the completed one, in place."""
    text = PLACE.sub(lambda match: generated(match[1]), source[0])
    text = DRAWN.sub(lambda found: drawn(found[1]), text)
    for path, page in ELSEWHERE.items():
        text = text.replace(f"]({path}", f"]({page}")
    source[0] = text


def drawn(what: str) -> str:
    """The image for a Mermaid diagram of this kind."""
    if what != "stateDiagram":
        raise ValueError(
            f"no diagram of type {what!r} is defined; see tools/docs/site_extension.py"
        )
    return f"```{{raw}} html\n{lifecycle_diagram.diagram()}\n```"


def generated(what: str) -> str:
    """The generated part of a page with this name."""
    match what:
        case "topics":
            lines = topics.lines(yaml.safe_load((DOCS / "asyncapi.yaml").read_text()))
        case "rest":
            lines = rest.lines(json.loads((DOCS / "openapi.json").read_text()))
        case "objects":
            definitions = {each["spec"]["names"]["kind"]: each for each in crds.documents()}
            lines = objects.lines(definitions)
        case _:
            raise ValueError(
                f"no generator of {what!r} is defined; see tools/docs/site_extension.py"
            )
    return "\n".join(lines)
