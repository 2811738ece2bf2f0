"""The container in which a session is opened, and the errors of sessions for users."""

import contextlib
from collections.abc import Iterator

from stromboli.cli import options
from stromboli.cli.errors import CommandError
from stromboli.cli.job_specs import job_reference
from stromboli.client import errors
from stromboli.client.sessions import opening, targets
from stromboli.shared.api import kinds


class SessionPlace(targets.Target, frozen=True):
    """A container, and the server at which its sessions are opened."""

    place: opening.Place


def select(
    reference: str,
    namespace: str,
    server: str | None,
    *,
    task: str | None,
    index: int | None,
    container: str | None,
    any_container: bool = False,
) -> SessionPlace:
    """The first running pod of ``JOB`` or ``JOB[7]``. Raises CommandError. ``any_container``: the
    containers of a pod share its ports, so it does not matter which one."""
    name, indexes = job_reference.split(reference, index)
    with options.client(server) as client, translated(namespace, name):
        job = client.decode(kinds.JOBS, client.job(namespace, name))
        pods = [client.decode(kinds.PODS, raw) for raw in client.pods(namespace, name)]
        found = targets.choose(
            job,
            pods,
            task=task or "",
            indexes=indexes,
            container=container or "",
            any_container=any_container,
        )
        place = client.session_place()
    return SessionPlace(found.namespace, found.pod, found.container, place)


@contextlib.contextmanager
def translated(namespace: str, job: str) -> Iterator[None]:
    """Errors of sessions as CommandErrors."""
    try:
        yield
    except errors.NoContainerError as error:
        next_step = f"list its pods: strom pod list -n {namespace} --job {job}"
        raise CommandError(error.what, error.reason, next_step) from None
    except errors.SessionError as error:
        next_step = f"see its pods: strom job describe {job} -n {namespace}"
        if "kubeconfig" in error.reason or "Kubernetes configuration" in error.what:
            next_step = "set KUBECONFIG: sessions on a cluster use your own rights"
        raise CommandError(error.what, error.reason, next_step) from None
