"""The blocks of docs/install.md, and of pages beside it, which tests run as they stand there."""

import re

from tests.charts.support.helm import ROOT


def block(name: str, page: str = "install.md") -> str:
    """The block whose fence says ``name`` behind its language."""
    text = (ROOT / "docs" / page).read_text()
    (found,) = re.findall(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", text, re.M | re.S)
    return str(found)
