"""``strom job run``: a job from options, a script with ``#STROM`` lines, or a manifest."""

import os
import re
import secrets
import string
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from stromboli.cli import files, options, usage_errors
from stromboli.cli.commands import apply
from stromboli.cli.commands.jobs import job_check, job_wait
from stromboli.cli.commands.jobs.trailing_command import COMMAND, CommandWithTrailingArguments
from stromboli.cli.errors import CommandError, UsageError
from stromboli.cli.job_specs import data_option, job_spec, script
from stromboli.cli.parameters import parsing as written
from stromboli.cli.render import output
from stromboli.shared.api import kinds
from stromboli.shared.jobspec import job_dependencies

SUFFIX_LENGTH = 5
MOST_RETRIES = 2**31 - 2
"""Maximum of ``--retries``: ``maxRetry`` is an int32 that also counts the first attempt."""
MOST_NAMED = 3
"""Maximum objects of a manifest that an error names."""
_SCRIPT = "stromboli.cli.job_specs.script"
_PLACES = "stromboli.cli.places"
OF_THE_CALL = {
    "file", "server", "dry_run", "check", "wait", "timeout", "output_format", "configuration",
}  # fmt: skip
"""Parameters about this call, not about the job: they are not allowed in a script."""
Amounts = dict[str, str] | None


class RunCommand(CommandWithTrailingArguments):
    """``strom job run``: the options in ``#STROM`` lines of a script come before those of the
    command line."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse the script's options before those of the command line."""
        before = args[: args.index("--")] if "--" in args else args
        if not ctx.resilient_parsing and (path := self._script(ctx, before)):
            job_script = _read_script(path)
            ctx.meta[_SCRIPT], ctx.meta[_PLACES] = job_script, {}
            for number, warning in job_script.warnings:
                output.show_note(f"Warning: {path}:{number}: {warning}")
            args = [
                *(word for line in job_script.lines for word in self._checked(ctx, path, line)),
                *args,
            ]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command. An error about several options names their lines in the script."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            places = ctx.meta.get(_PLACES, {})
            named = str(error.param_hint or "").split(", ")
            script_places = dict.fromkeys(places[option] for option in named if option in places)
            if not script_places:
                raise
            raise _misplaced_option(
                ", ".join(script_places), usage_errors.parser_message(error), ctx
            ) from None

    def _script(self, ctx: typer.Context, args: Sequence[str]) -> str | None:
        try:
            named = self.make_parser(ctx).parse_args(list(args))[0].get("name")
        except typer.TyperException:
            return None  # the real parse reports it
        return named if isinstance(named, str) and script.is_script(named) else None

    def _checked(
        self, ctx: typer.Context, path: str, line: script.DirectiveLine
    ) -> tuple[str, ...]:
        """The options of the line. Raises UsageError with the line's position for an invalid
        option.
        """
        place = f"{path}:{line.number}"
        alone = type(ctx)(self, info_name=ctx.info_name, parent=ctx.parent)
        try:
            parsed_options = self.make_parser(alone).parse_args(list(line.words))[0]
            super().parse_args(alone, list(line.words))
        except typer.Exit:  # --help
            parsed_options = {"help": True}
        except typer.TyperException as error:
            raise _misplaced_option(place, usage_errors.parser_message(error), ctx) from None
        named = {name for name, value in parsed_options.items() if value is not None}
        if "name" in named:
            raise UsageError(
                place,
                f"{parsed_options['name']!r} is not an option",
                f"{script.MARK} lines hold options only; set the job's name with --name",
            )
        if strange := sorted(named & OF_THE_CALL | named & {"help"}):
            option = "--" + strange[0].removesuffix("_format").replace("_", "-")
            raise UsageError(
                place, f"{option} is not allowed in a script", "set it on the command line"
            )
        options_of = {it.name: it.opts for it in self.params}
        ctx.meta[_PLACES] |= {option: place for name in named for option in options_of[name]}
        return line.words


def _misplaced_option(place: str, why: str, ctx: typer.Context) -> UsageError:
    return UsageError(place, why, f"see the usage: {ctx.command_path} --help")


_VARIABLE_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*", re.ASCII)
"""The names that kubectl accepts. API servers before Kubernetes 1.32 reject all others, and shells
cannot read them."""


def _variable(text: str) -> str:
    """``NAME=VALUE``; ``NAME`` alone takes its value from this environment. Raises ValueError."""
    name, equals, _ = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} has no name")
    if not _VARIABLE_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not the name of a variable; use letters, digits, _, - and ., and do not "
            "start with a digit"
        )
    if not equals and name not in os.environ:
        raise ValueError(f"{name} is not set in this shell; write {name}=VALUE")
    return text if equals else f"{name}={os.environ[name]}"


def _dependency(text: str) -> str:
    """The text of ``--dependency``, validated. Raises ValueError."""
    job_dependencies.parse(text)
    return text


def run(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB|SCRIPT",
            help="The job's name [default: generated], or a script: a name with a dot or a slash. "
            "#STROM and #SBATCH lines of a script hold options.",
        ),
    ] = None,
    name_option: Annotated[
        str | None, typer.Option("--name", "-N", metavar="NAME", help="The job's name.")
    ] = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    image: Annotated[
        str, typer.Option("--image", "-i", help="The container's image.")
    ] = job_spec.DEFAULT_IMAGE,
    replicas: Annotated[int, typer.Option("--replicas", "-r", min=1, help="Number of pods.")] = 1,
    minimum: Annotated[
        int | None,
        typer.Option(
            "--min",
            "-m",
            min=1,
            help="Pods that must start together (minAvailable). [default: all]",
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", "-g", min=0, help="GPUs per pod (nvidia.com/gpu).")
    ] = None,
    cpus: Annotated[
        str | None,
        typer.Option(
            "--cpus",
            "-c",
            metavar="N",
            help="CPUs per pod: 8, 500m.",
            parser=written.amount,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", metavar="SIZE", help="Memory per pod: 64Gi.", parser=written.amount
        ),
    ] = None,
    requests: Annotated[
        Amounts,
        typer.Option(
            "--requests",
            "-R",
            metavar="AMOUNTS",
            parser=written.amounts,
            help="Requests per pod, any resource. [default: cpu=1,memory=100Mi]",
        ),
    ] = None,
    limits: Annotated[
        Amounts,
        typer.Option(
            "--limits",
            "-L",
            metavar="AMOUNTS",
            parser=written.amounts,
            help="Limits per pod: cpu=2.",
        ),
    ] = None,
    time: Annotated[
        timedelta | None,
        typer.Option(
            "--time",
            metavar="DURATION",
            parser=written.time_limit,
            help="Time limit of the job: 90m, 4h, 1h30m, 2d, or as in sbatch: 90 (minutes), "
            "10:00:00, 1-12:00:00. The job is terminated at the limit; short "
            "jobs can be backfilled.",
        ),
    ] = None,
    array: Annotated[
        job_spec.Array | None,
        typer.Option(
            "--array",
            "-a",
            metavar="INDEXES",
            parser=job_spec.array,
            help="Run one pod per index (STROM_ARRAY_INDEX): 0-999%50 runs 50 at a time.",
        ),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(
            "--retries",
            metavar="N",
            min=0,
            max=MOST_RETRIES,
            help="After a pod failed, start all pods of the job again, at most N times; in an "
            "array, start only the failed index again.",
        ),
    ] = 0,
    dependency: Annotated[
        str | None,
        typer.Option(
            "--dependency",
            "-d",
            metavar="CONDITION:JOB",
            parser=_dependency,
            help="Start after other jobs: afterok:JOB[:JOB] (completed), afternotok (failed), "
            "afterany (ended), after (started); separate conditions with commas.",
        ),
    ] = None,
    reservation: Annotated[
        str,
        typer.Option(
            "--reservation",
            metavar="RESERVATION",
            help="Run only on the nodes of this reservation, during its period.",
        ),
    ] = "",
    data: Annotated[
        list[data_option.DataArgument] | None,
        typer.Option(
            "--data",
            metavar="NAME=URI:/MOUNT",
            parser=data_option.parse,
            help="A data set, fetched to the node before the pod starts: "
            "images=s3://bucket/images:/data. Add ,size=12Gi ,digest=sha256:HEX "
            ",locality=Required or ,sharing=Share. May be repeated.",
        ),
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME=VALUE",
            parser=_variable,
            help="Environment variable; NAME alone takes the value of this shell. May be repeated.",
        ),
    ] = None,
    workdir: Annotated[
        str,
        typer.Option(
            "--workdir",
            "-w",
            metavar="PATH",
            help="Working directory. [default: that of the image; on process nodes: / for a "
            "command, the current directory for a script]",
        ),
    ] = "",
    queue: Annotated[
        str, typer.Option("--queue", "-q", help="The queue.", autocompletion=options.queue_names)
    ] = "default",
    priority_class: Annotated[
        str, typer.Option("--priority", "--priority-class", help="Name of a PriorityClass.")
    ] = "",
    run_seconds: Annotated[
        float | None,
        typer.Option("--run-seconds", min=0.0, help="Run time of a pod on a simulated node."),
    ] = None,
    exit_code: Annotated[
        int | None,
        typer.Option("--exit-code", min=0, max=255, help="Exit code of a pod on a simulated node."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--filename", "-f", metavar="FILE", help="Submit the job of this manifest."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the manifest and submit nothing (-o yaml or json)."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Report whether the job would be admitted and start now, and submit nothing. Exit "
            "code 0: it would start. 1: rejected. 4: it would be pending.",
        ),
    ] = False,
    configuration: job_check.Configuration = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job ends; exit codes as in job wait.")
    ] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="With --wait: the time limit: 90s, 5m, 1h30m.")
    ] = None,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Submit a job: a command, a script or a manifest.

    Arguments after two dashes are the container's command:

    strom job run hello --gpus 1 --time 2h -- python train.py

    A script begins with #! and an interpreter. It can hold options in #STROM lines, as for sbatch.
    #SBATCH lines are translated; what is not supported is reported with its line. Options of the
    command line override both:

    strom job run train.sh --gpus 8
    """
    if sum((dry_run, check, wait)) > 1:
        raise typer.BadParameter("set at most one of them", param_hint="--dry-run, --check, --wait")
    if image == "t":  # kubectl's -it, which is read as --image t
        why = "a job has no terminal; open one in its running pod: strom job exec JOB -i -t -- bash"
        raise typer.BadParameter(why, param_hint="-it")
    if timeout is not None and not wait:
        raise typer.BadParameter("requires --wait", param_hint="--timeout")
    job_script: script.Script | None = ctx.meta.get(_SCRIPT)
    if name and name_option and job_script is None and name != name_option:
        raise typer.BadParameter(
            f"two names for one job: {name!r} and {name_option!r}", param_hint="--name"
        )
    timeout_s = options.duration_s(timeout, "--timeout")
    if name_option and _SLURM_NODES.fullmatch(name_option):
        raise typer.BadParameter(
            f"{name_option} would be the job's name, not a number of nodes as in Slurm: write "
            f"--replicas for pods, or strom job run {name_option} for such a name",
            param_hint="-N",
        )
    names_work = (name, name_option, file, ctx.meta[COMMAND], run_seconds, exit_code)
    if not any(each or each == 0 for each in names_work) and not _is_given(ctx, "image"):
        raise typer.BadParameter(
            "a command, a script or a manifest is missing: strom job run NAME -- COMMAND",
            param_hint="JOB|SCRIPT",
        )
    if file is not None:
        document = _job_from_manifest(ctx, file, namespace)
    else:
        stem = job_script.title if job_script else image
        own_name = name_option if job_script else name or name_option
        if array is not None and _is_given(ctx, "replicas"):
            raise typer.BadParameter(
                "set the parallelism of an array with %: 0-999%50", param_hint="--replicas"
            )
        job_name = own_name or job_spec.generated_name(stem, _suffix())
        wanted, most = _amounts(requests, limits, cpus, memory, gpus)
        spec = job_spec.RunSpec(
            name=job_name,
            namespace=namespace,
            image=image,
            replicas=array.at_once if array else replicas,
            minimum=minimum,
            requests=wanted,
            limits=most,
            queue=queue,
            priority_class=priority_class,
            run_seconds=run_seconds,
            exit_code=exit_code,
            command=job_script.command(ctx.meta[COMMAND], array=job_name if array else "")
            if job_script
            else ctx.meta[COMMAND],
            environment=dict(each.split("=", 1) for each in environment or ()),
            workdir=workdir,
            submit_directory=_directory() if job_script else "",
            slurm_name=(own_name or job_script.slurm_name)
            if job_script and job_script.is_of_slurm
            else "",
            time=time,
            array=array.indexes if array else "",
            after=dependency or "",
            reservation=reservation,
            retries=retries,
            data=tuple(each.entry for each in data or ()),
        )
        document = job_spec.document(spec)
    if dry_run:
        shape = output.Format.YAML if output_format.is_table else output_format
        output.show_objects(shape, kinds.JOBS, [output.encoded(document)])
        return
    with options.client(server) as client:
        if check:
            raise typer.Exit(job_check.check(client, document, configuration, output_format))
        stored = client.create_job(document["metadata"]["namespace"], document)
        created = kinds.metadata_of(stored)
        if output_format.is_table:
            output.show_lines([f"{output.title(kinds.JOBS, created.name)} created"])
        else:
            output.show_objects(output_format, kinds.JOBS, [stored])
        if wait:
            job_wait.until(client, created.namespace, created.name, None, timeout_s)


def _read_script(path: str) -> script.Script:
    text = files.text(path, "script", "specify a script; a program belongs in the image")
    try:
        return script.parse(path, text)
    except script.ScriptError as error:
        raise UsageError(f"{path}:{error.line}", error.why, error.next_step) from None


_SLURM_NODES = re.compile(r"\d+(-\d+)?")
"""Values of ``-N`` in Slurm. Here ``-N`` is the name, as in ``vcctl job run -N``: a user who means
4 nodes must not silently get a job of one pod with the name 4."""


def _is_given(ctx: typer.Context, name: str | None) -> bool:
    return ctx.get_parameter_source(name or "").name == "COMMANDLINE"  # type: ignore[union-attr]


def _amounts(
    requests: Amounts, limits: Amounts, cpus: str | None, memory: str | None, gpus: int | None
) -> tuple[dict[str, str], dict[str, str]]:
    try:
        return job_spec.amounts(requests or {}, limits or {}, cpus=cpus, memory=memory, gpus=gpus)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--cpus, --memory, --gpus") from None


def _job_from_manifest(ctx: typer.Context, file: str, namespace: str) -> dict[str, Any]:
    """The single job of a manifest. Raises BadParameter if an option describes a job too."""
    apart = {*OF_THE_CALL, "namespace"}
    job_options = [
        _title(parameter)
        for parameter in ctx.command.params
        if parameter.name not in apart and _is_given(ctx, parameter.name)
    ]
    if job_options or ctx.meta[COMMAND]:
        raise typer.BadParameter(
            "the manifest describes the job; remove " + ", ".join(job_options or ("the command",)),
            param_hint="--filename",
        )
    manifests = apply.manifests_of([file])
    documents = [manifest.document for manifest in manifests]
    wanted = (kinds.JOBS.api_version, kinds.JOBS.kind)
    if len(documents) > 1 or (documents[0]["apiVersion"], documents[0]["kind"]) != wanted:
        present = ", ".join(f"{it['apiVersion']} {it['kind']}" for it in documents[:MOST_NAMED])
        more = ", ..." if len(documents) > MOST_NAMED else ""
        raise CommandError(
            file,
            f"it must contain exactly one {' '.join(wanted)}, not {present}{more}",
            f"write apiVersion: {kinds.JOBS.api_version}"
            if [it["kind"] for it in documents] == [kinds.JOBS.kind]
            else f"use: strom apply -f {file}",
        )
    metadata = {"namespace": namespace, **(documents[0].get("metadata") or {})}
    metadata.setdefault("name", job_spec.generated_name("job", _suffix()))
    return {**documents[0], "metadata": metadata}


def _title(parameter: Any) -> str:
    """``--queue`` of an option, ``JOB|SCRIPT`` of an argument."""
    longest: str = max(parameter.opts, key=len)
    return longest if longest.startswith("-") else parameter.metavar or longest


def _directory() -> str:
    """The current directory; empty if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _suffix() -> str:
    letters = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(letters) for _ in range(SUFFIX_LENGTH))
