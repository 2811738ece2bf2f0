"""``strom job get``: a job with its tasks and pods, and why it is pending."""

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from stromboli.cli import options
from stromboli.cli.commands import explain
from stromboli.cli.errors import CommandError
from stromboli.cli.job_specs import job_reference
from stromboli.cli.render import job_view, log_lines, output, pod_status
from stromboli.client import phases, responses
from stromboli.shared import decoding
from stromboli.shared.api import batch, kinds
from stromboli.shared.api.views import accounting

if TYPE_CHECKING:
    from stromboli.cli.client import Client


def get(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show a job, its tasks and pods, and why it is pending.

    JOB[3,7-9] shows the pods of these indexes only.
    """
    name, indexes = job_reference.split(name)
    with options.client(server) as client:
        raw = client.job(namespace, name)
        if not output_format.is_table:
            output.show_objects(output_format, kinds.JOBS, [raw])
            return
        job = client.decode(kinds.JOBS, raw)
        pods = [pod_status.decode(pod) for pod in client.pods(namespace, name)]
        pods = log_lines.select_pods(pods, None, indexes)
        explanation = client.explanation(namespace, name)
        now = datetime.now(UTC)
        waiting = explain.waiting_pods(client, pods, now)
        evicted = job_view.last_eviction(_events(client, namespace, name), now)
        used = _used(client, job) if phases.phase_of(job) in phases.FINAL else []
    output.show_lines([*job_view.facts(job, now), *used, *evicted, ""])
    output.show_table(job_view.TASK_HEADERS, job_view.task_rows(job))
    if pods:
        output.show_lines([""])
        output.show_table(
            *output.without_empty_last_column(job_view.POD_HEADERS, job_view.pod_rows(pods, now))
        )
    output.show_lines(job_view.pending_reason(explanation, waiting, now))


def _used(client: "Client", job: batch.Job) -> list[str]:
    """What a job that has ended used of its requests; nothing if it is not known."""
    from stromboli.client.operations import accounting_calls

    metadata = job.metadata
    query = accounting.AttemptQuery(
        namespace=metadata.namespace, job=metadata.name, uid=metadata.uid
    )
    with contextlib.suppress(CommandError):
        page = client.send(accounting_calls.attempts(query))
        return job_view.used(page.attempts, is_whole=not page.continue_)
    return []


def _events(client: "Client", namespace: str, name: str) -> list[responses.KubernetesEvent]:
    """The job's Events; none if the user may not list Events."""
    with contextlib.suppress(CommandError):
        raws = client.events(namespace, name)
        return [decoding.from_json(raw, responses.KubernetesEvent) for raw in raws]
    return []
