"""The code blocks of docs/install.md and other pages that tests execute unchanged."""

import re

from tests.charts.support.helm import ROOT


def block(name: str, page: str = "install.md") -> str:
    """The block with ``name`` after its language."""
    text = (ROOT / "docs" / page).read_text()
    (found,) = re.findall(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", text, re.M | re.S)
    return str(found)
