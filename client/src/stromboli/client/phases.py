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
"""Phases that a job leaves only by a command."""
FINAL = ENDS - {"Aborted"}
"""``ENDS`` without the phase of a suspended job, which can be resumed."""


def phase_of(job: batch.Job) -> str:
    """The phase; Pending before the first reconciliation."""
    return job.status.state.phase or "Pending"
