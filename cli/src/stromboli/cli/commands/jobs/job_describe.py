"""``strom job describe``: a job in full, with its history and events."""

from datetime import UTC, datetime

from stromboli.cli import options
from stromboli.cli.commands import explain
from stromboli.cli.render import job_view, output, pod_status, timeline
from stromboli.client import responses
from stromboli.shared import decoding
from stromboli.shared.api import kinds


def describe(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Show a job in full, with its history and events."""
    with options.client(server) as client:
        job = client.decode(kinds.JOBS, client.job(namespace, name))
        raws = client.pods(namespace, name)
        events = [
            decoding.from_json(raw, responses.KubernetesEvent)
            for raw in client.events(namespace, name)
        ]
        explanation = client.explanation(namespace, name)
        history = client.tasks(namespace, name)
        pods = [pod_status.decode(raw) for raw in raws]
        now = datetime.now(UTC)
        waiting = explain.waiting_pods(client, pods, now)
    output.show_lines([*job_view.facts(job, now), ""])
    output.show_table(job_view.TASK_HEADERS, job_view.task_rows(job))
    if pods:
        output.show_lines([""])
        output.show_table(
            *output.without_empty_last_column(job_view.POD_HEADERS, job_view.pod_rows(pods, now))
        )
    output.show_lines(job_view.pending_reason(explanation, waiting, now))
    is_same = history.uid == job.metadata.uid  # else it belongs to an earlier job with this name
    before = timeline.attempts_without_pod(history.tasks, pods) if is_same else []
    entries = timeline.timeline_entries(job, pods, events, before)
    if entries:
        output.show_lines([""])
        output.show_table(timeline.HEADERS, timeline.rows(entries))
