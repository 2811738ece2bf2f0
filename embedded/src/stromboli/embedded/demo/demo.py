"""``strom demo``: trials of gangs, of restarts, of task topology and of processes."""

import asyncio
import sys
import tempfile
from pathlib import Path

import typer
from rich.console import Console

from stromboli.embedded.demo import experiment, real, report, traffic
from stromboli.shared.runtime import telemetry

DEMO_LOG = "demo.log"
PLAIN_WIDTH = 110
"""Width in columns without a terminal."""


def demo() -> None:
    """Run all trials and show their results."""
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    with tempfile.TemporaryDirectory(prefix="strom-demo-") as folder:
        state = Path(folder)
        log = (state / DEMO_LOG).open("w")
        telemetry.configure_logs(stream=log)
        with log, asyncio.Runner() as runner:
            failures = runner.run(_demo(console, state))
    if failures:
        for line in failures:
            console.print(f"[red]check failed:[/red] {line}")
        raise typer.Exit(1)
    console.print("\nNext: strom up starts this system for your own jobs.", highlight=False)


async def _demo(console: Console, state: Path) -> list[str]:
    console.print(
        "A job is 2 parameter servers and 4 workers that wait for each other; "
        f"there is room for {experiment.ROOM} pods.\n"
        "Jobs go through admission, monitor, scheduler and controller, all in this process.\n"
    )
    trials: list[experiment.Trial] = []
    for jobs in (1, 2, 5):
        for gang in (False, True):
            how = "as gangs" if gang else "pods one by one"
            with report.View(console, f"{jobs} jobs, {how}") as view:
                folder = state / f"{jobs}-{gang}"
                trials.append(await experiment.trial(folder, jobs, view.show, gang=gang))
            console.print(report.line(trials[-1]), highlight=False)
    console.print()
    console.print(report.summary(trials))
    with report.View(console, "5 jobs as gangs, everything restarted in the middle") as view:
        restarted, reasons = await experiment.restarted_trial(state / "restart", 5, view.show)
    console.print("\nWhy does the last job wait? `strom explain` says:")
    for line in reasons:
        console.print(f"  {line}", highlight=False, markup=False)
    console.print(
        f"\nEverything was stopped after the first job and started again: "
        f"{restarted.finished} of {restarted.jobs} jobs finished, nothing was lost."
        if restarted.finished == restarted.jobs
        else f"\nAfter the restart only {restarted.finished} of {restarted.jobs} jobs finished."
    )
    apart, near = await traffic.measure_traffic(state / "traffic")
    for line in report.traffic(apart, near):
        console.print(line, highlight=False)
    console.print(
        "\nSo far nodes only simulated pods. Now real jobs: their commands run as processes of "
        "this machine,\neach with an address of its own, and find each other by name.\n"
    )
    real_jobs_result = await real.show(state / "real")
    for line in report.real_jobs(real_jobs_result):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    stayed = (
        []
        if near > apart
        else [f"{near:.0%} of the traffic stayed inside a node, no more than without task-topology"]
    )
    return [*report.failures([*trials, restarted], reasons), *stayed, *real_jobs_result.failures]
