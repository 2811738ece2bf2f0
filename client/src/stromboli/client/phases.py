"""The phases of jobs. Pure."""

from stromboli.shared.api import batch

PHASES = (
    "Pending",
    "Aborting",
    "Aborted",
    "Running",
    "Restarting",
    "Completing",
    "Completed",
    "Terminating",
    "Terminated",
    "Failed",
)
ENDS = frozenset({"Completed", "Failed", "Aborted", "Terminated"})
"""Phases that a job does not leave by itself."""


def phase_of(job: batch.Job) -> str:
    """The phase; a job that the controller has not seen yet is Pending."""
    return job.status.state.phase or "Pending"
