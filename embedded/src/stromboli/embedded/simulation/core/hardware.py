"""Models of hardware on which the run time of tasks depends, such as networks and NUMA nodes.

A simulation knows requests and capacities alone. A model adds what else it depends on how long
tasks run: it has the objects that describe the hardware to the scheduler, follows which tasks are
on which nodes, and returns the factor by which tasks take longer there.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from stromboli.shared.api import meta


class Hardware(Protocol):
    """A model. It belongs to one simulation. One that inherits from this class needs ``slowdown``
    alone, if no objects describe it and jobs have no influence on each other."""

    def objects(self) -> Iterable[meta.Object]:
        """The objects that describe the hardware, at the start."""
        return ()

    def place(self, pod: str, cores: int, node: str) -> Iterable[meta.Object]:
        """A pod with whole cores holds its node from now on; returns the objects that changed."""
        del pod, cores, node
        return ()

    def release(self, pod: str) -> Iterable[meta.Object]:
        """The pod no longer holds its node; returns the objects that changed."""
        del pod
        return ()

    def slowdown(self, nodes: Mapping[str, str]) -> float:
        """By which factor tasks of a job take longer if its pods run on these nodes. ``nodes``: pod
        -> node, of all running tasks of the job."""
