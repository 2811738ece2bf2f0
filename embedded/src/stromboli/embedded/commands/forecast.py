"""``strom simulate forecast``: its options."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from stromboli.embedded.commands import run, times


def forecast(
    objects: Annotated[
        list[str],
        typer.Option(
            "--objects",
            metavar="FILE",
            help="The cluster, as `strom cluster dump` prints it; - for stdin. May be repeated.",
        ),
    ],
    config: run.ConfigOption = None,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Finished jobs as CSV, the oldest first: user,job,queue,tasks,run_s. Run times of "
            "jobs without an estimate are drawn from similar ones.",
            metavar="FILE",
        ),
    ] = None,
    now: Annotated[
        datetime | None,
        typer.Option(
            parser=times.parse_time,
            metavar="TIME",
            help="The time of --objects (RFC 3339). [default: now]",
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="Number of simulations, each with its own drawn run times."
        ),
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the drawn run times.")] = 0,
    output_format: run.OutputOption = run.Format.TABLE,
) -> None:
    """Show when the pending jobs of a cluster are expected to start.

    Simulates the scheduler from the present state until all pending jobs have started, at most 7
    days ahead. Several draws of run times give a range: 80 % of them are between P10 and P90. The
    answer can also be that a job is blocked by its queue's quota, or can never fit.
    """
    from stromboli.embedded.simulation import forecast

    forecast.forecast(
        objects=objects,
        config=config,
        history=history,
        now=now,
        draws=draws,
        seed=seed,
        output_format=output_format,
    )
