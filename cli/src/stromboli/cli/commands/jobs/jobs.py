"""``strom job``: every command about jobs, and those that list, show and delete them."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from stromboli.cli import options, selectors
from stromboli.cli.commands.jobs import (
    job_attach,
    job_changes,
    job_describe,
    job_exec,
    job_history,
    job_logs,
    job_wait,
    run,
)
from stromboli.cli.render import job_view, listing, output, pod_status
from stromboli.client import calls
from stromboli.client.phases import PHASES, phase_of
from stromboli.shared.api import batch, kinds

app = typer.Typer(cls=options.Group, help="Run jobs, look at them, and change them.")
app.command("run", cls=run.RunCommand)(run.run)


@app.command("list")
def list_jobs(
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    queue: options.QueueFilter = None,
    phase: Annotated[
        str | None, typer.Option("--phase", help="Only those in these phases: Pending,Running.")
    ] = None,
    selector: options.Selector = "",
    watch: options.Watch = False,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List jobs."""
    phases = options.phases(phase, "--phase") if phase else frozenset(PHASES)
    wanted = options.selector(selector)
    is_wide = output_format is output.Format.WIDE

    def is_wanted(job: batch.Job) -> bool:
        return (
            phase_of(job) in phases
            and queue in (None, job.spec.queue)
            and selectors.matches(wanted, job.metadata.labels)
        )

    def row(job: batch.Job, now: datetime) -> tuple[str, ...]:
        return job_view.row(job, now) + (job_view.wide(job) if is_wide else ())

    jobs = listing.Listing(
        kind=kinds.JOBS,
        what="jobs",
        headers=job_view.HEADERS + (job_view.WIDE_HEADERS if is_wide else ()),
        row=row,
        is_wanted=is_wanted,
        namespace=None if all_namespaces else namespace,
        state="PHASE",
    )
    with options.client(server) as client:
        if watch:
            listing.follow(client, jobs, output_format, calls.watch_jobs(jobs.namespace or ""))
        else:
            listing.show(client, jobs, output_format, client.jobs(jobs.namespace))


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
        pods = [pod_status.decode(pod) for pod in client.pods(namespace, name)]
        explanation = client.explanation(namespace, name)
    now = datetime.now(UTC)
    output.show_lines([*job_view.facts(job, now), ""])
    output.show_table(job_view.TASK_HEADERS, job_view.task_rows(job))
    if pods:
        output.show_lines([""])
        output.show_table(
            *output.without_empty_last_column(job_view.POD_HEADERS, job_view.pod_rows(pods, now))
        )
    output.show_lines(job_view.waits(explanation, pods))


app.command("describe")(job_describe.describe)
app.command("logs")(job_logs.logs)
app.command("exec", cls=run.CommandWithTrailingArguments)(job_exec.exec_in)
app.command("history")(job_history.history)
app.command("attach")(job_attach.attach)
app.command("detach")(job_attach.detach)
app.command("wait")(job_wait.wait)
app.command("suspend")(job_changes.suspend)
app.command("resume")(job_changes.resume)
app.command("restart")(job_changes.restart)
app.command("scale")(job_changes.scale)


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
