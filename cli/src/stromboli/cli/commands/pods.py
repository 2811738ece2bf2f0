"""``strom pod``: pods of jobs, and other pods that have a PodGroup or a queue."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from stromboli.cli import lazy, options
from stromboli.cli.commands import explain
from stromboli.cli.parameters import selectors
from stromboli.cli.render import listing, output, pod_status, pod_view, workload_view
from stromboli.client.operations import calls
from stromboli.shared import keys
from stromboli.shared.api import kinds

if TYPE_CHECKING:
    from stromboli.cli.client import Client

app = typer.Typer(cls=lazy.Group, help="Inspect pods of jobs and queued pods.")

HEADERS: tuple[str, ...] = ("NAME", "READY", "STATUS", "RESTARTS", "AGE")
WIDE_HEADERS: tuple[str, ...] = ("JOB", "TASK", "QUEUE", "IP", "NODE", "PENDING REASON")


@app.callback()
def _group() -> None:
    """Inspect pods of jobs and queued pods."""


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
            help="Only pods of this job.",
            autocompletion=options.job_names,
        ),
    ] = None,
    queue: options.QueueFilter = None,
    me: Annotated[bool, typer.Option("--me", help="Only pods of jobs that you have submitted.")] = (
        False
    ),
    selector: options.Selector = "",
    watch: options.Watch = False,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List pods of jobs, of PodGroups and of queues.

    Other pods of the cluster are not listed.
    """
    wanted = options.selector(selector)
    is_wide = output_format is output.Format.WIDE
    own_jobs: frozenset[tuple[str, str]] | None = None
    if me and watch:
        raise typer.BadParameter("--me cannot be combined with --watch", param_hint="--me")

    def is_wanted(pod: pod_status.Pod) -> bool:
        is_others = (job, queue) == (None, None) and is_gang_or_queue_pod(pod)
        is_asked = is_others or matches_job_and_queue(pod, job, queue)
        if own_jobs is not None and pod.metadata.controller_key not in own_jobs:
            return False
        return is_asked and selectors.matches(wanted, pod.metadata.labels)

    def cells(pod: pod_status.Pod, now: datetime) -> tuple[str, ...]:
        return row(pod, now) + (wide_cells(pod) if is_wide else ())

    pod_listing = listing.Listing(
        kind=pod_status.PODS,
        what="pods",
        headers=HEADERS + (WIDE_HEADERS if is_wide else ()),
        row=cells,
        is_wanted=is_wanted,
        namespace=None if all_namespaces else namespace,
        state="STATUS",
    )
    with options.client(server) as client:
        own_jobs = _own_jobs(client, pod_listing.namespace) if me else None
        if watch:
            listing.follow(
                client, pod_listing, output_format, calls.watch_pods(pod_listing.namespace or "")
            )
        else:
            listing.show(client, pod_listing, output_format, client.all_pods(pod_listing.namespace))


PodName = Annotated[
    str, typer.Argument(metavar="POD", help="The pod's name.", autocompletion=options.pod_names)
]


@app.command("get")
def get(
    name: PodName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show a pod and its containers."""
    with options.client(server) as client:
        raw = client.send(calls.pod(namespace, name))
        if not output_format.is_table:
            output.show_objects(output_format, pod_status.PODS, [raw])
            return
        _show(client, pod_status.decode(raw))


@app.command("describe")
def describe(
    name: PodName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Show a pod, its containers, its conditions and its events."""
    with options.client(server) as client:
        pod = pod_status.decode(client.send(calls.pod(namespace, name)))
        events = client.send(calls.pod_events(namespace, name)).items
        _show(client, pod)
    now = datetime.now(UTC)
    if pod.status.conditions:
        output.show_lines([""])
        output.show_table(pod_view.CONDITION_HEADERS, pod_view.conditions(pod, now))
    if events:
        output.show_lines([""])
        output.show_table(workload_view.EVENT_HEADERS, workload_view.event_rows(events, now))


def _show(client: "Client", pod: pod_status.Pod) -> None:
    now = datetime.now(UTC)
    output.show_lines(pod_view.facts(pod, now))
    output.show_lines([""])
    output.show_table(pod_view.CONTAINER_HEADERS, pod_view.containers(pod, now))
    waiting = explain.waiting_pods(client, [pod], now)
    if stuck := (*waiting.nodes, *waiting.data):
        output.show_lines(["", *stuck])


def _own_jobs(client: "Client", namespace: str | None) -> frozenset[tuple[str, str]]:
    """The namespaces and uids of the jobs that the user has submitted."""
    user = options.submitter(client, is_me=True)
    jobs = (client.decode(kinds.JOBS, raw) for raw in client.jobs(namespace))
    return frozenset(job.metadata.owner_key for job in jobs if options.is_submitted_by(user, job))


def read(client: "Client", namespace: str | None) -> list[pod_status.Pod]:
    """The pods of a namespace, or all, by namespace and name."""
    pods = map(pod_status.decode, client.all_pods(namespace))
    return sorted(pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))


def matches_job_and_queue(pod: pod_status.Pod, job: str | None, queue: str | None) -> bool:
    """Whether a pod belongs to this job and queue; to any job if neither is named."""
    own = pod.metadata.label(keys.JOB_NAME)
    if queue is not None and queue not in queue_names_of(pod):
        return False
    if job is None:
        return own is not None or queue is not None
    return own == job


def is_gang_or_queue_pod(pod: pod_status.Pod) -> bool:
    """Whether a pod has a PodGroup or names a queue."""
    return bool(pod.metadata.annotation(keys.GROUP_NAME) or queue_names_of(pod))


def queue_names_of(pod: pod_status.Pod) -> tuple[str, ...]:
    """The queues that a pod names: that of its label, then that of its annotation."""
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


def wide_cells(pod: pod_status.Pod) -> tuple[str, ...]:
    """The further cells of a pod's row, under ``WIDE_HEADERS``."""
    return (
        pod.metadata.label(keys.JOB_NAME) or "",
        pod.metadata.annotation(keys.TASK_SPEC) or "",
        next(iter(queue_names_of(pod)), ""),
        pod.status.pod_ip,
        pod.spec.node_name,
        pod_status.unschedulable_message(pod),
    )
