"""``strom simulate``: scheduling decisions without a cluster."""

from typing import ClassVar

import typer

from stromboli.cli import lazy
from stromboli.cli.lazy import Entry


class Simulate(lazy.Group):
    """The commands of ``strom simulate``."""

    entries: ClassVar[dict[str, Entry]] = {
        "pack": Entry(
            "stromboli.embedded.commands.pack:pack",
            "Measure how many GPUs are allocated under load.",
        ),
        "replay": Entry(
            "stromboli.embedded.commands.replay:replay",
            "Run recorded sessions again and print lines of JSON.",
        ),
        "run": Entry(
            "stromboli.embedded.commands.run:run",
            "Simulate a workload with the real scheduler, in virtual time.",
        ),
        "compare": Entry(
            "stromboli.embedded.commands.compare:compare",
            "Compare scheduler configurations on one workload.",
        ),
        "forecast": Entry(
            "stromboli.embedded.commands.forecast:forecast",
            "Show when the pending jobs of a cluster are expected to start.",
        ),
        "session": Entry(
            "stromboli.embedded.commands.session:session",
            "Run scheduling sessions and print lines of JSON.",
        ),
    }


app = typer.Typer(cls=Simulate, help="Try the scheduler's decisions without a cluster.")


@app.callback()
def _group() -> None:
    """Try the scheduler's decisions without a cluster."""
