"""What plugins and actions may use of a session (``interfaces`` states the extension points)."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.model import entities, nodes, resource_columns

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import (
        external_calls,
        filter_score,
        statement,
        topology_constraint,
    )


class SessionForPlugins(Protocol):
    """What a plugin may use of a session, besides the methods of ``Registry``.

    A plugin reads the model and never changes it.
    """

    configuration: configuration.Configuration
    now: datetime
    """The session's time; compare with it through ``reached``."""
    seed: int
    total: Any
    """The allocatable resources of all nodes: one sum per resource column."""
    resources: resource_columns.Resources
    nodes: nodes.Nodes
    jobs: dict[str, entities.Job]
    queues: dict[str, entities.Queue]
    cluster: cluster_objects.Cluster
    """Other objects, measured usage, and ``memory``: the state that the previous session stored."""
    outside: "external_calls.ExternalCalls"
    """The only way to call another process; responses are recorded."""
    complaints: list[str]
    """Problems to log that do not stop the session."""
    remember: dict[str, str]
    """Plugin -> the state that it gets in ``cluster.memory`` in the next session."""

    def waiting_jobs(self) -> Iterable[entities.Job]:
        """Jobs that wait for a decision or need an explanation, by key. Use it instead of
        ``jobs``."""

    def job_of(self, task: entities.Task) -> entities.Job | None:
        """The task's job; None for a pod without a PodGroup in the session."""

    def queue_of(self, job: entities.Job) -> entities.Queue:
        """The job's queue."""

    def reached(self, at: datetime) -> bool:
        """Whether the session's time has reached ``at``; if not, a session is started then."""

    def request_session_at(self, at: datetime) -> None:
        """Start another session at this time."""

    def emit_event(self, job: entities.Job, text: str) -> None:
        """Add an Event to the PodGroup."""


class SessionForActions(SessionForPlugins, Protocol):
    """What an action may use of a session, besides the combined answers of ``Extensions``."""

    finder: "filter_score.NodeFinder"
    """Filter and score: the nodes for a task."""
    topology: "topology_constraint.TopologyConstraint"
    untried: set[str]
    """Jobs that are left for another session because this one ``is_full``."""

    @property
    def is_full(self) -> bool:
        """Whether the limit of decisions is reached."""

    def statement(self) -> "statement.Statement":
        """A transaction: place, nominate, evict; then commit or discard all of it."""

    def ordered_jobs(self, jobs: Iterable[entities.Job]) -> list[entities.Job]:
        """Jobs in the order in which they are served."""

    def ordered_tasks(self, tasks: Iterable[entities.Task]) -> list[entities.Task]:
        """Tasks in the order in which they are placed."""

    def ordered_victims(
        self, victims: Iterable[entities.Task], preemptor: entities.Task
    ) -> list[entities.Task]:
        """Victims in the order in which they are evicted."""

    def admit(self, job: entities.Job) -> None:
        """Make the job Inqueue."""

    def job_blocked(self, job: entities.Job) -> None:
        """Notify plugins that the job was tried and cannot start now."""

    def held_back(self, job: entities.Job) -> str:
        """Why the job must wait for another job of its queue; empty if it need not."""
