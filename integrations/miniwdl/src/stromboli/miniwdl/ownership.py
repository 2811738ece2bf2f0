"""Decides which jobs belong to a running miniwdl.

While a job runs, its miniwdl holds a lock (``flock``) on a file in the run directory of the task,
which the operating system releases when the process ends, also after a kill. A miniwdl that starts
deletes the jobs whose lock is free: no process waits for their results. It keeps all
other jobs: those of a running miniwdl, of a miniwdl on a machine whose directories are not visible
here, and of run directories on a file system without locks.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from stromboli.client import Client, errors
from stromboli.miniwdl.manifest import DIRECTORY, ENGINE, ENGINE_LABEL

LOCK = "strom.lock"


@contextlib.contextmanager
def held(directory: str) -> Iterator[None]:
    """Hold the lock on this run directory inside the context."""
    with open(os.path.join(directory, LOCK), "w") as file:
        with contextlib.suppress(OSError):  # without locks nothing is deleted
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def is_abandoned(directory: str) -> bool:
    """Whether the process that owned this directory's job has ended."""
    try:
        with open(os.path.join(directory, LOCK)) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def delete_abandoned(client: Client, namespace: str) -> list[str]:
    """Delete the jobs of killed runs; returns their names. Raises ClientError."""
    deleted = []
    for job in client.jobs(namespace):
        metadata = job.metadata
        is_ours = (metadata.labels or {}).get(ENGINE_LABEL) == ENGINE
        if is_ours and is_abandoned((metadata.annotations or {}).get(DIRECTORY, "")):
            with contextlib.suppress(errors.NotFoundError):
                client.delete(metadata.name, namespace)
                deleted.append(metadata.name)
    return deleted
