"""``strom job run``: a job from options, or the one in a manifest."""

import secrets
import string
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from stromboli.cli import apply, job_spec, options, output
from stromboli.cli.errors import CommandError
from stromboli.shared.api import kinds

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


def _suffix() -> str:
    letters = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(letters) for _ in range(SUFFIX_LENGTH))
