"""Models of hardware on which the run time of tasks depends, such as networks and NUMA nodes.

Without a model, a simulation knows only requests and capacities. A model provides the objects that
describe the hardware to the scheduler, tracks which tasks are on which nodes, and returns the
factor by which tasks take longer there.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from stromboli.shared.api import meta


class Hardware(Protocol):
    """A model for one simulation. A subclass has to implement only ``slowdown`` if no objects
    describe its hardware and jobs do not influence each other."""

    def objects(self) -> Iterable[meta.Object]:
        """Return the objects that describe the hardware at the start."""
        return ()

    def place(self, pod: str, cores: int, node: str) -> Iterable[meta.Object]:
        """Record that a pod holds whole cores of a node; return the objects that changed."""
        del pod, cores, node
        return ()

    def release(self, pod: str) -> Iterable[meta.Object]:
        """Record that a pod no longer holds its node; return the objects that changed."""
        del pod
        return ()

    def slowdown(self, nodes: Mapping[str, str]) -> float:
        """Return the factor by which tasks of a job take longer if its pods run on these nodes.
        ``nodes``: pod -> node, of all running tasks of the job."""
