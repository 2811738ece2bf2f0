"""Links of all pages have existing targets, in the repository and on the site."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.blocks import PAGES, ROOT


def targets(page: Path) -> Iterator[str]:
    """Targets of a page's links and images, except those on other sites."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
        for part in token.children or ():
            found = part.attrs.get("href") or part.attrs.get("src")
            if isinstance(found, str) and "://" not in found and not found.startswith("#"):
                yield found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_something(page: Path) -> None:
    missing = [
        target for target in targets(page) if not (page.parent / target.partition("#")[0]).exists()
    ]
    assert missing == []


def test_every_path_in_the_architecture_page_exists() -> None:
    """Compared by the end of the path: ``shared/leases``, ``core/replay/session_replay.py``."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`([a-z][a-z_]*(?:/[a-z_.]*)+)`", page)
    assert len(named) > 20
    tops = [top for top in ROOT.iterdir() if top.is_dir() and not top.name.startswith(".")]
    there = {f"/{path.relative_to(ROOT)}/" for top in tops for path in (top, *top.rglob("*"))}
    missing = [name for name in named if not any(f"/{name.strip('/')}/" in path for path in there)]
    assert missing == []
