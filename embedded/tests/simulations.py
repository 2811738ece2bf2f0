"""Small scenarios for tests of the simulation."""

from collections.abc import Sequence

from stromboli.embedded.simulation.core import job_runs, kernel, workload
from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.shared.api import reservation

SECOND = workload.SECOND_US


def configured(
    action_names: str = "enqueue, allocate, backfill",
    plugin_names: Sequence[str] = ("priority", "gang", "predicates", "proportion"),
    **flags: bool,
) -> configuration.Configuration:
    """One tier of these plugins; ``flags`` are those of the plugin gang."""
    tier = [{"name": name, **(flags if name == "gang" else {})} for name in plugin_names]
    document = {"actions": action_names, "tiers": [{"plugins": tier}]}
    return config_reader.read_configuration(document, actions.NAMES, plugins.NAMES)


def nodes(count: int, cpu: int = 1, gpus: int = 0) -> tuple[workload.NodeGroup, ...]:
    """Equal nodes."""
    return (workload.NodeGroup("n", count, workload.Resources(cpu * 1000, gpus=gpus)),)


def job(
    name: str,
    submit_s: int = 0,
    duration_s: int = 10,
    tasks: int = 1,
    min_available: int | None = None,
    cpu: int = 1,
    queue: str = "default",
    priority: int = 0,
    gpus: int = 0,
) -> workload.Job:
    """A job; by default its gang is all of its tasks."""
    return workload.Job(
        name,
        submit_s * SECOND,
        duration_s * SECOND,
        tasks,
        tasks if min_available is None else min_available,
        workload.Resources(cpu * 1000, gpus=gpus),
        queue,
        priority,
    )


class Simulated:
    """A simulation that has run: times of finished jobs in seconds."""

    def __init__(
        self,
        cluster: tuple[workload.NodeGroup, ...],
        jobs: Sequence[workload.Job],
        options: workload.Options | None = None,
        failures: Sequence[workload.NodeFailure] = (),
        reservations: Sequence[reservation.AdvanceReservation] = (),
    ) -> None:
        self.finished: dict[str, job_runs.JobRun] = {}
        ordered = sorted(jobs, key=lambda each: each.submit_us)
        scenario = workload.Scenario(
            cluster,
            ordered,
            failures=tuple(failures),
            options=options or workload.Options(),
            reservations=tuple(reservations),
        )
        self.kernel = kernel.Simulation(scenario, self._add)
        self.kernel.run()

    def _add(self, run: job_runs.JobRun) -> None:
        self.finished[run.job.name] = run

    @property
    def starts_s(self) -> dict[str, float]:
        """Job -> first start."""
        return {name: run.first_start_us / SECOND for name, run in sorted(self.finished.items())}

    @property
    def ends_s(self) -> dict[str, float]:
        """Job -> end."""
        return {name: run.end_us / SECOND for name, run in sorted(self.finished.items())}
