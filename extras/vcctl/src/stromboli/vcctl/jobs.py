"""Commands about jobs: ``vcctl job``, vsub, vjobs, vcancel, vsuspend and vresume."""

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stromboli.cli import options
from stromboli.cli.commands import apply
from stromboli.cli.errors import CommandError
from stromboli.cli.job_specs import job_spec
from stromboli.cli.render import output
from stromboli.shared import decoding
from stromboli.shared.api import batch, kinds
from stromboli.vcctl import shell, tables, view

if TYPE_CHECKING:
    from stromboli.cli.client import Client

NAMESPACE = "default"
IMAGE = "busybox"
SCHEDULER = "volcano"
AMOUNTS = "cpu=1000m,memory=100Mi"

Image = Annotated[str, typer.Option("--image", "-i", help="The container's image.")]
Minimum = Annotated[
    int, typer.Option("--min", "-m", help="Pods that must start together (minAvailable).")
]
Replicas = Annotated[int, typer.Option("--replicas", "-r", help="The number of pods.")]
Requests = Annotated[str, typer.Option("--requests", "-R", help="Requests of a pod.")]
Limits = Annotated[str, typer.Option("--limits", "-L", help="Limits of a pod.")]

job = shell.program("job")


@job.callback()
def _job() -> None:
    """Job operations."""


@job.command("run", context_settings=shell.CONTEXT)
def run(
    name: shell.JobName = "",
    namespace: shell.Namespace = NAMESPACE,
    image: Image = IMAGE,
    minimum: Minimum = 1,
    replicas: Replicas = 1,
    requests: Requests = AMOUNTS,
    limits: Limits = AMOUNTS,
    scheduler: shell.Scheduler = SCHEDULER,
    filename: Annotated[str, typer.Option("--filename", "-f", help="The job's YAML.")] = "",
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Run a job from options, or from a file."""
    if filename:
        job = _of_file(filename)
    else:
        if not name:
            raise CommandError(
                "job", "neither a name nor a file is set", "set --name or --filename"
            )
        job = document(name, image, minimum, replicas, requests, limits, scheduler, ())
    job["metadata"].setdefault("namespace", namespace)
    with shell.client(master, kubeconfig) as client:
        client.create_job(namespace, job)
    output.show_lines([f"run job {job['metadata']['name']} successfully"])


@job.command("list", context_settings=shell.CONTEXT)
def list_jobs(
    namespace: shell.Namespace = NAMESPACE,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only jobs of this queue.")] = "",
    scheduler: shell.Scheduler = "",
    selector: shell.NameSelector = "",
    all_namespaces: shell.AllNamespaces = False,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """List jobs."""
    with shell.client(master, kubeconfig) as client:
        jobs = _read(client, "" if all_namespaces else namespace)
    rows = [
        each
        for each in jobs
        if queue in ("", each.spec.queue) and _is_wanted(each, scheduler, selector)
    ]
    if not rows:
        output.show_lines([shell.NOTHING])
        return
    output.show_lines(tables.jobs(rows, rows, all_namespaces=all_namespaces))


@job.command("view", context_settings=shell.CONTEXT)
def view_job(
    name: shell.JobName = "",
    namespace: shell.Namespace = NAMESPACE,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Show a job in full."""
    with shell.client(master, kubeconfig) as client:
        _show(client, shell.required(name), namespace, with_conditions=True)


@job.command("suspend", context_settings=shell.CONTEXT)
def suspend(
    name: shell.JobName = "",
    namespace: shell.Namespace = NAMESPACE,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Abort a job."""
    _command(name, namespace, "AbortJob", master, kubeconfig)


@job.command("resume", context_settings=shell.CONTEXT)
def resume(
    name: shell.JobName = "",
    namespace: shell.Namespace = NAMESPACE,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Resume a job."""
    _command(name, namespace, "ResumeJob", master, kubeconfig)


@job.command("delete", context_settings=shell.CONTEXT)
def delete(
    name: shell.JobName = "",
    namespace: shell.Namespace = NAMESPACE,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Delete a job."""
    with shell.client(master, kubeconfig) as client:
        client.delete_job(namespace, shell.required(name))
    output.show_lines([f"delete job {name} successfully"])


def vsub(
    name: shell.OwnName = "",
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-N", envvar="VOLCANO_DEFAULT_JOB_NAMESPACE", help="The namespace."
        ),
    ] = NAMESPACE,
    image: Annotated[
        str,
        typer.Option("--image", "-i", envvar="VOLCANO_DEFAULT_IMAGE", help="The image."),
    ] = IMAGE,
    minimum: Minimum = 1,
    replicas: Replicas = 1,
    requests: Requests = AMOUNTS,
    limits: Limits = AMOUNTS,
    scheduler: Annotated[
        str,
        typer.Option(
            "--scheduler", "-S", envvar="VOLCANO_SCHEDULER_NAME", help="The scheduler's name."
        ),
    ] = SCHEDULER,
    command: Annotated[
        str, typer.Option("--command", "-c", help="The command that the pods run.")
    ] = "",
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Submit a job."""
    shell.required(name)
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise CommandError("command", str(error), "close the quotation") from None
    job = document(name, image, minimum, replicas, requests, limits, scheduler, words)
    job["metadata"]["namespace"] = namespace
    with shell.client(master, kubeconfig) as client:
        client.create_job(namespace, job)
    output.show_lines([f"run job {name} successfully"])


def vjobs(
    name: shell.OwnName = "",
    namespace: shell.OwnNamespace = NAMESPACE,
    scheduler: shell.Scheduler = "",
    selector: shell.NameSelector = "",
    all_namespaces: shell.AllNamespaces = False,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """List jobs, or show one in full."""
    with shell.client(master, kubeconfig) as client:
        if name:
            _show(client, name, namespace, with_conditions=False)
            return
        jobs = _read(client, "" if all_namespaces else namespace)
    if not jobs:
        output.show_lines([shell.NOTHING])
        return
    selected = [each for each in jobs if _is_wanted(each, scheduler, selector)]
    output.show_lines(tables.jobs(jobs, selected, all_namespaces=all_namespaces))


def vcancel(
    name: shell.OwnName = "",
    namespace: shell.OwnNamespace = NAMESPACE,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Cancel a job: delete it."""
    with shell.client(master, kubeconfig) as client:
        client.delete_job(namespace, shell.required(name))
    output.show_lines([f"cancel job {name} successfully"])


def vsuspend(
    name: shell.OwnName = "",
    namespace: shell.OwnNamespace = NAMESPACE,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Abort a job."""
    _command(name, namespace, "AbortJob", master, kubeconfig)


def vresume(
    name: shell.OwnName = "",
    namespace: shell.OwnNamespace = NAMESPACE,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """Resume a job."""
    _command(name, namespace, "ResumeJob", master, kubeconfig)


def document(
    name: str,
    image: str,
    minimum: int,
    replicas: int,
    requests: str,
    limits: str,
    scheduler: str,
    command: tuple[str, ...],
) -> dict[str, Any]:
    """The job of run and vsub. Raises BadParameter for invalid amounts."""
    container: dict[str, Any] = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "requests": options.resources(requests, "--requests"),
            "limits": options.resources(limits, "--limits"),
        },
    }
    if command:
        container["command"] = list(command)
    template = {
        "metadata": {"labels": {job_spec.POD_LABEL: name}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": {"name": name},
        "spec": {
            "minAvailable": minimum,
            "schedulerName": scheduler,
            "tasks": [{"replicas": replicas, "template": template}],
        },
    }


def _of_file(filename: str) -> dict[str, Any]:
    if ".yaml" not in filename and ".yml" not in filename:
        raise CommandError(filename, "only yaml files are supported", "specify one")
    documents = [manifest.document for manifest in apply.manifests_of([filename])]
    if len(documents) != 1 or documents[0].get("kind") != kinds.JOBS.kind:
        raise CommandError(filename, "not exactly one Job", "put one into each file")
    return {**documents[0], "metadata": dict(documents[0].get("metadata") or {})}


def _read(client: "Client", namespace: str) -> list[batch.Job]:
    jobs = [client.decode(kinds.JOBS, raw) for raw in client.jobs(namespace or None)]
    return sorted(jobs, key=lambda each: each.metadata.key)


def _is_wanted(job: batch.Job, scheduler: str, text: str) -> bool:
    return scheduler in ("", job.spec.scheduler_name) and text in job.metadata.name


def _show(client: "Client", name: str, namespace: str, *, with_conditions: bool) -> None:
    raw = client.job(namespace, name)
    rows = [
        decoding.from_json(event, view.Event)
        for event in client.events(namespace, name)
        if kinds.metadata_of(event).name.startswith(f"{name}.")
    ]
    output.show_lines(
        view.job(output.with_type_meta(kinds.JOBS, raw), with_conditions=with_conditions)
    )
    output.show_lines(view.events(rows, datetime.now(UTC)))


def _command(
    name: str, namespace: str, action: str, master: str | None, kubeconfig: str | None
) -> None:
    """Print nothing, and return before the command is executed, as Volcano does."""
    with shell.client(master, kubeconfig) as client:
        client.command_job(namespace, shell.required(name), action)
