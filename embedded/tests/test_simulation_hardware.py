"""Models of hardware in a simulation: where tasks run decides how long they take."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from embedded.tests import simulations
from embedded.tests.simulations import SECOND, Simulated
from stromboli.embedded.simulation.core import kernel, results, workload
from stromboli.shared.api import meta

PLAIN = simulations.configured(plugin_names=("priority", "gang", "predicates"))


class Slow:
    """Jobs take twice as long on the node ``n-0``."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[int, str]] = {}

    def objects(self) -> Iterable[meta.Object]:
        return ()

    def place(self, pod: str, cores: int, node: str) -> Iterable[meta.Object]:
        self.held[pod] = cores, node
        return ()

    def release(self, pod: str) -> Iterable[meta.Object]:
        del self.held[pod]
        return ()

    def slowdown(self, nodes: Mapping[str, str]) -> float:
        assert all(self.held[pod][1] == node for pod, node in nodes.items())
        return 2.0 if "n-0" in nodes.values() else 1.0


def ends_s(jobs: Sequence[workload.Job], *, keeps_progress: bool = False) -> dict[str, float]:
    """Job -> end, on two nodes of one core of which the first one fails at 10 s for 5 s."""
    found: dict[str, float] = {}
    model = Slow()
    scenario = workload.Scenario(
        simulations.nodes(2),
        jobs,
        failures=(workload.NodeFailure("n-0", 10 * SECOND, 15 * SECOND),) if keeps_progress else (),
        options=workload.Options(configured=PLAIN, keeps_progress=keeps_progress),
        hardware=model,
    )
    simulated = kernel.Simulation(
        scenario, lambda run: found.update({run.job.name: run.end_us / SECOND})
    )
    simulated.run()
    assert results.summarize(simulated, 0).unfinished == 0
    assert model.held == {}
    return found


def test_a_job_takes_longer_where_its_hardware_is_slower() -> None:
    assert ends_s([simulations.job("a"), simulations.job("b")]) == {"a": 20, "b": 10}


def test_a_synchronous_job_is_as_slow_as_its_slowest_task() -> None:
    job = msgspec.structs.replace(simulations.job("a", tasks=2), is_synchronous=True)
    assert ends_s([job]) == {"a": 20}


def test_kept_progress_is_that_of_the_slower_task() -> None:
    """Half of the work is done when the node fails; the other node does the rest at full speed."""
    jobs = [simulations.job("a"), simulations.job("b", duration_s=12)]
    assert ends_s(jobs, keeps_progress=True) == {"a": 17, "b": 12}


def test_pods_of_a_job_with_roles_have_their_names() -> None:
    roles = ("ps", "worker", "worker")
    job = msgspec.structs.replace(simulations.job("a", tasks=3), roles=roles)
    ran = Simulated(simulations.nodes(3), [job], workload.Options(configured=PLAIN))
    assert ran.ends_s == {"a": 10}
