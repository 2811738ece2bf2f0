"""Selects the container in which a session is opened, and translates errors of sessions."""

import contextlib
from collections.abc import Iterator

from stromboli.cli import options
from stromboli.cli.errors import CommandError, UsageError
from stromboli.cli.job_specs import job_reference
from stromboli.client import errors
from stromboli.client.sessions import opening, targets
from stromboli.shared import keys
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
    tool: str = "",
) -> SessionPlace:
    """A container of the first running pod of ``JOB`` or ``JOB[7]``, or of its debug tool's pod.
    ``any_container``: select any container of the pod, because its containers share its ports.
    Raises CommandError."""
    name, indexes = job_reference.split(reference, index)
    if tool and (task or indexes):
        raise UsageError("--tool", "a debug tool has one pod", "leave out the task and the index")
    with options.client(server) as client, translated(namespace, name):
        job = client.decode(kinds.JOBS, client.job(namespace, name))
        found_pods = (client.tools if tool else client.pods)(namespace, name)
        pods = [client.decode(kinds.PODS, raw) for raw in found_pods]
        if tool:
            pods = [pod for pod in pods if pod.metadata.label(keys.TOOL) == tool]
            if not pods:
                raise CommandError(
                    f"job {namespace}/{name}",
                    f"debug tool {tool} is not attached",
                    f"start it: strom job attach {name} -n {namespace} --tool {tool}",
                )
        target = targets.choose(
            job,
            pods,
            task=task or "",
            indexes=indexes,
            container=container or "",
            any_container=any_container,
        )
        place = client.session_place()
    return SessionPlace(target.namespace, target.pod, target.container, place)


@contextlib.contextmanager
def translated(namespace: str, job: str) -> Iterator[None]:
    """Translate errors of sessions inside the context to CommandErrors."""
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
