"""``strom job``: run, list, view, delete and wait for jobs."""

import contextlib
import secrets
import string
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand

from stromboli.cli import apply, job_spec, job_view, options, output, waiting
from stromboli.cli.errors import CommandError, NotFoundError, TimedOutError
from stromboli.shared.api import batch, kinds

if TYPE_CHECKING:
    from stromboli.cli.client import Client

app = typer.Typer(cls=options.Group, help="Run, list, view, delete and wait for jobs.")

SUFFIX_LENGTH = 5
_COMMAND = "stromboli.cli.command"


class WithCommand(TyperCommand):
    """A command that takes another one behind ``--``, so that its first word is no argument of
    ours."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Keep what stands behind ``--`` aside."""
        before, after = args, list[str]()
        if "--" in args:
            at = args.index("--")
            before, after = args[:at], args[at + 1 :]
        ctx.meta[_COMMAND] = tuple(after)
        return super().parse_args(ctx, before)

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Show it in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARG]...]"]


@app.command("run", cls=WithCommand)
def run(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Name; one is made up if there is none.")
    ] = None,
    name_option: Annotated[
        str | None, typer.Option("--name", "-N", metavar="NAME", help="The same as JOB.")
    ] = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    image: Annotated[
        str, typer.Option("--image", "-i", help="The container's image.")
    ] = job_spec.DEFAULT_IMAGE,
    replicas: Annotated[int, typer.Option("--replicas", "-r", min=1, help="Number of pods.")] = 1,
    minimum: Annotated[
        int | None,
        typer.Option("--min", "-m", min=1, help="Pods that must start together; all by default."),
    ] = None,
    requests: Annotated[
        str | None,
        typer.Option("--requests", "-R", help="What a pod needs: cpu=1,memory=100Mi by default."),
    ] = None,
    limits: Annotated[
        str | None, typer.Option("--limits", "-L", help="What a pod may use at most: cpu=2.")
    ] = None,
    queue: Annotated[str, typer.Option("--queue", "-q", help="The queue.")] = "default",
    priority_class: Annotated[
        str, typer.Option("--priority-class", help="Name of a PriorityClass.")
    ] = "",
    run_seconds: Annotated[
        float | None,
        typer.Option("--run-seconds", min=0.0, help="How long a pod runs on a simulated node."),
    ] = None,
    exit_code: Annotated[
        int | None,
        typer.Option("--exit-code", min=0, max=255, help="How it ends on a simulated node."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--filename", "-f", metavar="FILE", help="Take the job from this manifest instead."
        ),
    ] = None,
    server: options.Server = None,
) -> None:
    """Run a job of one task, or the one in a manifest.

    The command of its container stands behind two dashes: strom job run hello -- sleep 5
    """
    if name and name_option and name != name_option:
        raise typer.BadParameter(f"{name!r} and {name_option!r} are two names", param_hint="--name")
    if file is not None:
        document = _job_of_file(ctx, file, namespace)
    else:
        spec = job_spec.RunSpec(
            name=name or name_option or job_spec.generated_name(image, _suffix()),
            namespace=namespace,
            image=image,
            replicas=replicas,
            minimum=minimum,
            requests=options.resources(requests, "--requests"),
            limits=options.resources(limits, "--limits"),
            queue=queue,
            priority_class=priority_class,
            run_seconds=run_seconds,
            exit_code=exit_code,
            command=ctx.meta[_COMMAND],
        )
        document = job_spec.document(spec)
    with options.client(server) as client:
        stored = client.create_job(document["metadata"]["namespace"], document)
    created = kinds.metadata_of(stored)
    output.show_lines([f"{apply.title(stored, created.name)} created"])


@app.command("list")
def list_jobs(
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")
    ] = False,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Only those of this queue.")
    ] = None,
    phase: Annotated[
        str | None, typer.Option("--phase", help="Only those in these phases: Pending,Running.")
    ] = None,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List jobs."""
    wanted = _phases(phase, "--phase") if phase else frozenset(waiting.PHASES)
    with options.client(server) as client:
        raws = client.jobs(None if all_namespaces else namespace)
        found = [(client.decode(kinds.JOBS, raw), raw) for raw in raws]
    found = [
        (job, raw)
        for job, raw in sorted(found, key=lambda pair: pair[0].metadata.key)
        if waiting.phase_of(job) in wanted and queue in (None, job.spec.queue)
    ]
    if output_format is not output.Format.TABLE:
        documents = [_named(raw) for _, raw in found]
        output.show_document(output_format, output.as_list(documents))
        return
    if not found:
        output.show_note("No jobs found.")
        return
    now = datetime.now(UTC)
    headers = job_view.HEADERS
    rows = [job_view.row(job, now) for job, _ in found]
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
        if output_format is not output.Format.TABLE:
            output.show_document(output_format, _named(raw))
            return
        job = client.decode(kinds.JOBS, raw)
        pods = [client.decode(kinds.PODS, pod) for pod in client.pods(namespace, name)]
        explanation = client.explanation(namespace, name)
    now = datetime.now(UTC)
    output.show_lines([*job_view.facts(job, now), ""])
    output.show_table(job_view.TASK_HEADERS, job_view.task_rows(job))
    if pods:
        output.show_lines([""])
        output.show_table(job_view.POD_HEADERS, job_view.pod_rows(pods, now))
    output.show_lines(job_view.waits(explanation))


@app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="JOB...", help="Names of jobs.")],
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Delete jobs and all that is their own."""
    with options.client(server) as client:
        for name in names:
            client.delete_job(namespace, name)
            output.show_lines([f"job.{kinds.JOBS.group}/{name} deleted"])


@app.command("wait")
def wait(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    wanted: Annotated[
        str, typer.Option("--for", help="Phases to wait for: Running,Completed.", metavar="PHASES")
    ] = ",".join(sorted(waiting.ENDS)),
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Give up after this long: 90s, 5m, 1.5h.")
    ] = None,
    server: options.Server = None,
) -> None:
    """Wait until a job is in a phase or has ended.

    Exit code 0: it is in that phase or Completed. 1: it ended as Failed, Aborted or Terminated,
    or is gone. 124: the time is up.
    """
    phases = _phases(wanted, "--for")
    try:
        timeout_s = None if timeout is None else waiting.duration_s(timeout)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from None
    with options.client(server) as client, _progress() as report:
        look = _look(client, namespace, name)
        try:
            job = waiting.until(
                look, phases, timeout_s, clock=time.monotonic, sleep=time.sleep, report=report
            )
        except waiting.GoneError:
            raise CommandError(
                f"job {namespace}/{name}", "it was deleted meanwhile", "submit it again"
            ) from None
        except TimeoutError as error:
            raise TimedOutError(
                f"job {namespace}/{name}",
                f"still {error} after {timeout_s:g} s",
                f"wait longer, or see why: strom explain {name} -n {namespace}",
            ) from None
    output.show_lines([job_view.progress(job)])
    if waiting.phase_of(job) in waiting.ENDS - {"Completed"}:
        raise typer.Exit(1)


def _look(client: "Client", namespace: str, name: str) -> Callable[[], batch.Job | None]:
    """Reads the job; that it is absent is an error the first time only."""
    seen = False

    def look() -> batch.Job | None:
        nonlocal seen
        try:
            job = client.decode(kinds.JOBS, client.job(namespace, name))
        except NotFoundError:
            if not seen:
                raise
            return None
        seen = True
        return job

    return look


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[batch.Job], None]]:
    """A line that changes in place on a terminal; a line per change elsewhere, both on stderr."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("waiting") as status:
            yield lambda job: status.update(job_view.progress(job))
        return
    last = ""

    def report(job: batch.Job) -> None:
        nonlocal last
        line = job_view.progress(job)
        if line != last and waiting.phase_of(job) not in waiting.ENDS:
            output.show_note(line)
        last = line

    yield report


def _job_of_file(ctx: typer.Context, file: str, namespace: str) -> dict[str, Any]:
    """The one job of a manifest; nothing else on the command line may describe a job."""
    apart = {"file", "namespace", "server"}
    given = [
        parameter.name
        for parameter in ctx.command.params
        if parameter.name not in apart
        and ctx.get_parameter_source(parameter.name or "").name == "COMMANDLINE"  # type: ignore[union-attr]
    ]
    if given or ctx.meta[_COMMAND]:
        raise typer.BadParameter(
            "the manifest says what the job is; leave out all else but -n and --server",
            param_hint="--filename",
        )
    found = apply.manifests_of([file])
    documents = [manifest.document for manifest in found]
    wanted = (kinds.JOBS.api_version, kinds.JOBS.kind)
    if len(documents) > 1 or (documents[0]["apiVersion"], documents[0]["kind"]) != wanted:
        raise CommandError(file, "not exactly one Job", f"use: strom apply -f {file}")
    metadata = {"namespace": namespace, **(documents[0].get("metadata") or {})}
    metadata.setdefault("name", job_spec.generated_name("job", _suffix()))
    return {**documents[0], "metadata": metadata}


def _phases(text: str, option: str) -> frozenset[str]:
    try:
        return waiting.phases(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _named(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """An object with its kind, which an API server leaves out in lists."""
    document = msgspec.json.decode(raw)
    return {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.kind, **document}


def _suffix() -> str:
    letters = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(letters) for _ in range(SUFFIX_LENGTH))
