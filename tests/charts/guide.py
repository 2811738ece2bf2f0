"""The blocks of docs/install.md, which tests run as they stand there."""

import re

from tests.charts.helm import ROOT

GUIDE = ROOT / "docs/install.md"


def block(name: str) -> str:
    """The block whose fence says ``name`` behind its language."""
    found = re.findall(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    (text,) = found
    return str(text)
