"""The input of a simulation: nodes, jobs, failures of nodes, and options.

Times are integers in microseconds since the start of the simulation, so that sums are exact.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from stromboli.embedded.simulation.core.hardware import Hardware
from stromboli.scheduler.core import policy
from stromboli.scheduler.core.config import configuration
from stromboli.shared.api import batch, reservation, scheduling
from stromboli.shared.jobspec.data_sets import DataSetRequest

SECOND_US = 1_000_000
START = datetime(2026, 1, 1, tzinfo=UTC)
"""The date of time 0: plugins with calendars, such as tdm, need one."""
NEVER_US = 2**62


def datetime_at(time_us: int) -> datetime:
    """The date of a virtual time."""
    return START + timedelta(microseconds=time_us)


def time_of(at: datetime) -> int:
    """The virtual time of a date."""
    return (at - START) // timedelta(microseconds=1)


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Amounts of cpu, memory and GPUs, of a node or of one task."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0

    def amounts(self) -> tuple[int, int, int]:
        """The amounts in the order of the fields."""
        return self.cpu_milli, self.memory_bytes, self.gpus


class NodeGroup(msgspec.Struct, frozen=True):
    """Equal nodes. With a count of one, the node has the name of the group. ``cache_bytes``: the
    capacity of its cache of data sets, 0 for none; it reads ``read_bytes_per_s`` from origins."""

    name: str
    count: int
    resources: Resources
    labels: dict[str, str] = {}
    pods: int = 110
    cache_bytes: int = 0
    read_bytes_per_s: int = 100_000_000

    def names(self) -> list[str]:
        """The names of the nodes."""
        if self.count == 1:
            return [self.name]
        return [f"{self.name}-{number}" for number in range(self.count)]


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job of equal tasks, each of which runs for ``duration_us``.

    ``min_available``: size of the gang. ``preemptable``: None leaves the scheduler's default.
    ``is_synchronous``: a task makes progress only while all tasks of the job run, as in training
    with parameter servers or all-reduce. ``estimate_us``: the run time that the job states; 0:
    none. ``data_sets``: those that its tasks read; a task makes no progress until its node has
    them. ``reservation``: the AdvanceReservation that it names. ``roles``: the name of each task;
    without them all tasks have one name. ``annotations`` and ``network_topology``: of the PodGroup.
    ``topology_policy``: the NUMA alignment that its tasks require; such tasks have limits.
    """

    name: str
    submit_us: int
    duration_us: int
    tasks: int = 1
    min_available: int = 1
    resources: Resources = Resources()
    queue: str = "default"
    priority: int = 0
    preemptable: bool | None = None
    node_selector: str = ""
    is_synchronous: bool = False
    estimate_us: int = 0
    data_sets: tuple[DataSetRequest, ...] = ()
    reservation: str = ""
    roles: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    network_topology: batch.NetworkTopology | None = None
    topology_policy: str = ""


class NodeFailure(msgspec.Struct, frozen=True):
    """A node that fails with its pods, and returns at ``up_us``; ``NEVER_US``: it does not
    return."""

    node: str
    down_us: int
    up_us: int = NEVER_US


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a simulation. ``until_us``: virtual time at which it stops. ``keeps_progress``: an
    evicted task continues from the point of its eviction; else its job starts from the beginning.
    ``interval_us``: smallest time between two sessions of different virtual times, 0 for exact.
    ``pause_us``: smallest time between any two sessions, the service's ``min_session_interval_s``;
    0: decisions have no latency. ``seed``: of the sessions.
    """

    configured: configuration.Configuration = policy.DEFAULT_CONFIGURATION
    until_us: int = NEVER_US
    keeps_progress: bool = False
    interval_us: int = 0
    pause_us: int = 0
    seed: int = 0


class Scenario(msgspec.Struct, frozen=True):
    """The input of a simulation. ``jobs``: in the order of their submission; the iterable is read
    once.

    ``queues``: objects as users write them. A queue that only jobs name is created with weight 1.
    ``hardware``: a model that changes the run times of tasks; None for none.
    """

    nodes: tuple[NodeGroup, ...]
    jobs: Iterable[Job]
    queues: tuple[scheduling.Queue, ...] = ()
    failures: tuple[NodeFailure, ...] = ()
    options: Options = Options()
    reservations: tuple[reservation.AdvanceReservation, ...] = ()
    hardware: Hardware | None = None
