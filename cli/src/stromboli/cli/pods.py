"""``strom pod``: the pods of jobs."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options, output, pod_status, selectors
from stromboli.shared import keys
from stromboli.shared.api import kinds

if TYPE_CHECKING:
    from stromboli.cli.client import Client

app = typer.Typer(cls=options.Group, help="Look at the pods of jobs.")

HEADERS: tuple[str, ...] = ("NAME", "READY", "STATUS", "RESTARTS", "AGE")
WIDE_HEADERS: tuple[str, ...] = ("JOB", "TASK", "QUEUE", "IP", "NODE")
Found = tuple[pod_status.Pod, msgspec.Raw]


@app.callback()
def _group() -> None:
    """Look at the pods of jobs."""


@app.command("list")
def list_pods(
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            "-j",
            metavar="JOB",
            help="Only those of this job.",
            autocompletion=options.job_names,
        ),
    ] = None,
    queue: options.QueueFilter = None,
    selector: options.Selector = "",
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List the pods of jobs."""
    wanted = options.selector(selector)
    with options.client(server) as client:
        found = [
            (pod, raw)
            for pod, raw in read(client, None if all_namespaces else namespace)
            if is_of(pod, job, queue) and selectors.matches(wanted, pod.metadata.labels)
        ]
    if not output_format.is_table:
        output.show_objects(output_format, kinds.PODS, [raw for _, raw in found], many=True)
        return
    if not found:
        output.show_none("pods", None if all_namespaces else namespace)
        return
    now, is_wide = datetime.now(UTC), output_format is output.Format.WIDE
    headers = HEADERS + (WIDE_HEADERS if is_wide else ())
    rows = [row(pod, now) + (wide(pod) if is_wide else ()) for pod, _ in found]
    if all_namespaces:
        headers = ("NAMESPACE", *headers)
        rows = [
            (pod.metadata.namespace, *cells) for (pod, _), cells in zip(found, rows, strict=True)
        ]
    output.show_table(headers, rows)


def read(client: "Client", namespace: str | None) -> list[Found]:
    """The pods of a namespace, or all, by namespace and name."""
    pods = [(pod_status.decode(raw), raw) for raw in client.all_pods(namespace)]
    return sorted(pods, key=lambda pair: (pair[0].metadata.namespace, pair[0].metadata.name))


def is_of(pod: pod_status.Pod, job: str | None, queue: str | None) -> bool:
    """Whether a pod belongs to this job and queue; to any job if neither is named."""
    own = pod.metadata.label(keys.JOB_NAME)
    if queue is not None and queue not in queues_of(pod):
        return False
    if job is None:
        return own is not None or queue is not None
    return own == job


def queues_of(pod: pod_status.Pod) -> tuple[str, ...]:
    """The queue that a pod names, by its label or annotation."""
    names = (pod.metadata.label(keys.QUEUE_NAME), pod.metadata.annotation(keys.NAMESPACE_QUEUE))
    return tuple(name for name in names if name)


def row(pod: pod_status.Pod, now: datetime) -> tuple[str, ...]:
    """A pod as a row under ``HEADERS``."""
    return (
        pod.metadata.name,
        pod_status.ready(pod),
        pod_status.status(pod),
        pod_status.restarts(pod, now),
        output.age(pod.metadata.creation_timestamp, now),
    )


def wide(pod: pod_status.Pod) -> tuple[str, ...]:
    """A pod as the rest of a row under ``WIDE_HEADERS``."""
    return (
        pod.metadata.label(keys.JOB_NAME) or "",
        pod.metadata.annotation(keys.TASK_SPEC) or "",
        next(iter(queues_of(pod)), ""),
        pod.status.pod_ip,
        pod.spec.node_name,
    )
