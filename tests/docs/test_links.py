"""Links from any page of the repository lead somewhere, also where the repository is shown."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.blocks import PAGES, ROOT


def targets(page: Path) -> Iterator[str]:
    """Where links and pictures of a page lead, but for other sites."""
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
