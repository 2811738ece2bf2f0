"""``strom job``: every command about jobs, and those that list, show and delete them."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from stromboli.cli import (
    attach,
    changes,
    explain,
    history,
    job_describe,
    job_exec,
    job_logs,
    job_view,
    job_wait,
    options,
    output,
    run,
    selectors,
)
from stromboli.client.phases import PHASES, phase_of
from stromboli.shared.api import kinds

app = typer.Typer(cls=options.Group, help="Run jobs, look at them, and change them.")
app.command("run", cls=run.Run)(run.run)


@app.command("list")
def list_jobs(
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    queue: options.QueueFilter = None,
    phase: Annotated[
        str | None, typer.Option("--phase", help="Only those in these phases: Pending,Running.")
    ] = None,
    selector: options.Selector = "",
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List jobs."""
    phases = options.phases(phase, "--phase") if phase else frozenset(PHASES)
    wanted = options.selector(selector)
    with options.client(server) as client:
        raws = client.jobs(None if all_namespaces else namespace)
        found = [(client.decode(kinds.JOBS, raw), raw) for raw in raws]
    found = [
        (job, raw)
        for job, raw in sorted(found, key=lambda pair: pair[0].metadata.key)
        if phase_of(job) in phases
        and queue in (None, job.spec.queue)
        and selectors.matches(wanted, job.metadata.labels)
    ]
    if not output_format.is_table:
        output.show_objects(output_format, kinds.JOBS, [raw for _, raw in found], many=True)
        return
    if not found:
        output.show_none("jobs", None if all_namespaces else namespace)
        return
    now, wide = datetime.now(UTC), output_format is output.Format.WIDE
    headers = job_view.HEADERS + (job_view.WIDE_HEADERS if wide else ())
    rows = [job_view.row(job, now) + (job_view.wide(job) if wide else ()) for job, _ in found]
    if all_namespaces:
        headers = ("NAMESPACE", *headers)
        rows = [(job.metadata.namespace, *row) for (job, _), row in zip(found, rows, strict=True)]
    output.show_table(headers, rows)


@app.command("view")
def view(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show a job, its tasks and pods, and why it waits if it does."""
    with options.client(server) as client:
        raw = client.job(namespace, name)
        if not output_format.is_table:
            output.show_objects(output_format, kinds.JOBS, [raw])
            return
        job = client.decode(kinds.JOBS, raw)
        pods = [client.decode(kinds.PODS, pod) for pod in client.pods(namespace, name)]
        explanation = client.explanation(namespace, name)
        held = explain.held_back(client, namespace, name, explanation)
    now = datetime.now(UTC)
    output.show_lines([*job_view.facts(job, now), ""])
    output.show_table(job_view.TASK_HEADERS, job_view.task_rows(job))
    if pods:
        output.show_lines([""])
        output.show_table(*output.filled(job_view.POD_HEADERS, job_view.pod_rows(pods, now)))
    output.show_lines(job_view.waits(explanation, held))


app.command("describe")(job_describe.describe)
app.command("logs")(job_logs.logs)
app.command("exec", cls=run.WithCommand)(job_exec.exec_in)
app.command("history")(history.history)
app.command("attach")(attach.attach)
app.command("detach")(attach.detach)
app.command("wait")(job_wait.wait)
app.command("suspend")(changes.suspend)
app.command("resume")(changes.resume)
app.command("restart")(changes.restart)
app.command("scale")(changes.scale)


@app.command("delete")
def delete(
    names: options.JobNames,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Delete jobs and all that is their own."""
    with options.client(server) as client:

        def remove(name: str) -> str:
            client.delete_job(namespace, name)
            return f"{output.title(kinds.JOBS, name)} deleted"

        options.for_each(names, remove)
