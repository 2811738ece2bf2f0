"""Output of ``strom demo``: a live view on a terminal, plain lines elsewhere, and the result."""

from rich.console import Console
from rich.live import Live
from rich.table import Table

from stromboli.embedded.demo import experiment, real
from stromboli.embedded.demo.experiment import JobView, Trial

BLOCKS = "█"
PHASES = {"Completed": "green", "Running": "cyan", "Pending": "yellow"}


class View:
    """Displays the jobs of the running trial: redrawn in place on a terminal, else nothing."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._live = Live(console=console, transient=True, refresh_per_second=20)
        self._is_live = console.is_terminal

    def __enter__(self) -> "View":
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def show(self, jobs: list[JobView]) -> None:
        """Draw the current state of every job."""
        if not self._is_live:
            return
        table = Table(title=self._title, title_justify="left", box=None)
        for header in ("job", "phase", f"pods on nodes (of {experiment.PODS_OF_A_JOB})"):
            table.add_column(header)
        for job in jobs:
            style = PHASES.get(job.phase, "red")
            table.add_row(job.name, f"[{style}]{job.phase}", BLOCKS * job.held)
        self._live.update(table)


def line(trial: Trial) -> str:
    """Format a trial as one line."""
    how = "with gangs   " if trial.gang else "without gangs"
    fate = f"{trial.finished} of {trial.jobs} finished in {trial.seconds:.1f} s"
    if trial.finished < trial.jobs:
        blocked_jobs = ", ".join(
            f"{name} holds {pods}" for name, pods in sorted(trial.holders.items())
        )
        fate = f"{trial.finished} of {trial.jobs} finished, then deadlock: {blocked_jobs}"
    elif trial.most_held:
        fate += f"; up to {trial.most_held} pods held by a job that could not start"
    return f"  {how}  {trial.jobs} job{'s' if trial.jobs > 1 else ' '}  {fate}"


def summary(trials: list[Trial]) -> Table:
    """Return a table of all trials."""
    table = Table(title="Jobs of 6 pods, room for 9", title_justify="left")
    table.add_column("jobs", justify="right")
    table.add_column("one by one (gang and job order off, pods shuffled)")
    table.add_column("as gangs")
    for jobs in sorted({trial.jobs for trial in trials}):
        cells = [
            _cell(trial)
            for gang in (False, True)
            for trial in trials
            if trial.jobs == jobs and trial.gang is gang
        ]
        table.add_row(str(jobs), *cells)
    return table


def _cell(trial: Trial) -> str:
    if trial.finished < trial.jobs:
        pod_count = sum(trial.holders.values())
        finished = f"{trial.finished} of {trial.jobs} finished"
        return f"deadlock: {finished}, {pod_count} pods held by waiting jobs"
    waste = f", {trial.most_held} pods held by waiting jobs meanwhile" if trial.most_held else ""
    return f"all {trial.jobs} finished in {trial.seconds:.1f} s{waste}"


def traffic(apart: float, near: float) -> list[str]:
    """Describe the share of job traffic that stays inside a node."""
    return [
        "",
        "Three of these jobs on three nodes of 6 CPUs; their tasks prefer the same node",
        "as the others. Share of the traffic between workers and parameter servers inside a node:",
        f"  {apart:4.0%}  placed by the usual scores",
        f"  {near:4.0%}  with the plugin task-topology",
    ]


def real_jobs(real_jobs_result: real.RealJobsResult) -> list[str]:
    """Format the output of the real jobs, each with a title."""
    lines = []
    for job in real_jobs_result.ran:
        lines += [f"{job.name} ({job.phase}): {real.SHOWN[job.name]}"]
        lines += [f"    {line}" for line in job.lines]
    if real_jobs_result.left_out:
        lines.append(f"Not shown here: {real_jobs_result.left_out}")
    return lines


def failures(trials: list[Trial], reasons: list[str]) -> list[str]:
    """Return the expectations that were not met; empty if all were."""
    lines = []
    for trial in trials:
        if trial.gang and trial.finished < trial.jobs:
            lines.append(f"with gangs only {trial.finished} of {trial.jobs} jobs finished")
        if trial.gang and trial.most_held:
            lines.append(
                f"with gangs {trial.most_held} pods were held by jobs that could not start"
            )
        if not trial.gang and trial.jobs == 1 and trial.finished != 1:
            lines.append("one job alone did not finish without gangs")
        if not trial.gang and trial.jobs == 2 and not trial.most_held:
            lines.append("two jobs without gangs left no pods of waiting jobs")
        if not trial.gang and trial.jobs == 5 and trial.finished == 5:
            lines.append("five jobs without gangs did not deadlock")
    if not reasons:
        lines.append("no job was pending, so none was explained")
    return lines
