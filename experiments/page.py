"""The page of the experiments, with a chart and a table of each."""

import re
from pathlib import Path

from experiments import support
from stromboli.embedded.simulation import svg

DOCS = Path("docs")
PAGE = DOCS / "experiments.md"
IMAGES = DOCS / "pictures"


def write(name: str, found: support.Found) -> None:
    """Write the chart of an experiment, and its table into the page. Raises ValueError."""
    (IMAGES / f"experiment-{name}.svg").write_text(chart(found) + "\n")
    PAGE.write_text(with_results(PAGE.read_text(), name, support.table(found)))


def chart(found: support.Found) -> str:
    """A bar for each variant with the first measure."""
    heading = next(iter(next(iter(found.values()))))
    bars = {
        variant: (measured[heading].mean, measured[heading].half_width or 0.0)
        for variant, measured in found.items()
    }
    return svg.intervals(heading, bars)


def with_results(page: str, name: str, text: str) -> str:
    """The page with the table of an experiment between its marks. Raises ValueError."""
    begin, end = f"<!-- {name} -->", "<!-- end -->"
    pattern = re.compile(f"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
    changed, count = pattern.subn(lambda it: f"{it[1]}\n{text}\n\n{it[2]}", page)
    if count != 1:
        raise ValueError(f"{PAGE} needs one {begin} with {end} after it, and has {count}")
    return changed
