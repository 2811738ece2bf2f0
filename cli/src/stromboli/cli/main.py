"""``strom``: the root command with its error handling."""

import contextlib
import errno
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from stromboli.cli import installed_commands, lazy, other_words
from stromboli.cli.errors import INTERRUPTED, REFUSED, CommandError
from stromboli.cli.lazy import Entry
from stromboli.cli.render import output

TRACEBACK = "STROM_TRACEBACK"
"""If set, unexpected errors are shown with their traceback."""
BROKEN_PIPE = 141
"""The exit code after SIGPIPE, as in a shell: 128 + 13."""


class Root(lazy.Group):
    """All commands, each imported only when it is called."""

    entries: ClassVar[dict[str, Entry]] = {
        "job": Entry("stromboli.cli.commands.jobs.jobs:app", "Run, inspect and change jobs."),
        "queue": Entry("stromboli.cli.commands.queues:app", "Create, inspect and change queues."),
        "pod": Entry("stromboli.cli.commands.pods:app", "Inspect pods of jobs and queued pods."),
        "podgroup": Entry("stromboli.cli.commands.pod_groups:app", "Inspect PodGroups."),
        "node": Entry("stromboli.cli.commands.nodes.nodes:app", "Inspect nodes and their devices."),
        "data": Entry(
            "stromboli.cli.commands.data:app", "Inspect data sets in the caches of nodes."
        ),
        "flow": Entry(
            "stromboli.cli.commands.workloads:flows",
            "Inspect flows: jobs created in order from templates.",
        ),
        "template": Entry(
            "stromboli.cli.commands.workloads:templates",
            "Inspect templates, from which flows create jobs.",
        ),
        "cron": Entry(
            "stromboli.cli.commands.workloads:crons",
            "Inspect, suspend and resume crons: jobs on a schedule.",
        ),
        "claim": Entry(
            "stromboli.cli.commands.claims:claims",
            "Inspect claims: devices that are allocated to pods.",
        ),
        "claimtemplate": Entry(
            "stromboli.cli.commands.claims:templates",
            "Inspect claim templates: each pod gets a claim.",
        ),
        "reservation": Entry(
            "stromboli.cli.commands.reservations:app",
            "Reserve nodes for users, queues or maintenance.",
        ),
        "cluster": Entry(
            "stromboli.cli.commands.cluster_dump:app", "Export the scheduler's view of the cluster."
        ),
        "apply": Entry(
            "stromboli.cli.commands.apply:apply",
            "Create or update objects of manifests, all or none.",
        ),
        "delete": Entry(
            "stromboli.cli.commands.objects:delete",
            "Delete the objects of manifests.",
            "DeleteCommand",
        ),
        "diff": Entry(
            "stromboli.cli.commands.objects:diff", "Show what apply would change; writes nothing."
        ),
        "get": Entry(
            "stromboli.cli.commands.objects:get",
            "Show objects of a kind: strom get job train -o yaml.",
        ),
        "explain": Entry(
            "stromboli.cli.commands.explain:explain", "Explain why a job is pending, with numbers."
        ),
        "top": Entry(
            "stromboli.cli.commands.top:top",
            "Show resource usage by queue, job or node.",
        ),
        "history": Entry(
            "stromboli.cli.commands.accounting.history:history",
            "Show every attempt of all jobs, also of deleted ones.",
        ),
        "history backup": Entry(
            "stromboli.cli.commands.accounting.backup:backup",
            "Write the history's database to a file while it is used.",
        ),
        "history restore": Entry(
            "stromboli.cli.commands.accounting.backup:restore",
            "Fill an empty database of the history from a backup.",
        ),
        "timeline": Entry(
            "stromboli.cli.commands.accounting.past_jobs:timeline",
            "Show a job's phases, waits and attempts over time.",
        ),
        "lineage": Entry(
            "stromboli.cli.commands.accounting.past_jobs:lineage",
            "Show which jobs a job evicted, and which evicted it.",
        ),
        "usage": Entry(
            "stromboli.cli.commands.accounting.usage:usage",
            "Show CPU, memory and GPU hours by queue, user or day.",
        ),
        "topology": Entry(
            "stromboli.cli.commands.topology:topology",
            "Show HyperNodes and the free resources of each.",
        ),
        "context": Entry(
            "stromboli.cli.commands.context:app",
            "Show, select and change contexts: servers with a namespace.",
        ),
        "login": Entry(
            "stromboli.cli.commands.context:login",
            "Store a token from stdin in a context and select it.",
        ),
        "whoami": Entry(
            "stromboli.cli.commands.context:whoami",
            "Show your user, groups, server and namespace.",
        ),
        "version": Entry(
            "stromboli.cli.commands.version:version",
            "Show the version, and whether the server is ready.",
        ),
    }
    aliases: ClassVar[dict[str, str]] = {
        "jobs": "job", "queues": "queue", "pods": "pod", "podgroups": "podgroup", "pg": "podgroup",
        "nodes": "node", "flows": "flow", "templates": "template", "crons": "cron",
        "reservations": "reservation",
        "claims": "claim", "resourceclaim": "claim", "resourceclaims": "claim",
        "claimtemplates": "claimtemplate", "resourceclaimtemplate": "claimtemplate",
        "resourceclaimtemplates": "claimtemplate",
    }  # fmt: skip
    other_words = other_words.OF_STROM

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command, print its error, and exit with its code."""
        try:
            code = super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except CommandError as error:
            output.show_error(error.lines())
            code = error.exit_code
        except typer.TyperException as error:
            words = sys.argv[1:] if args is None else args
            output.show_error(_usage_error_lines(error, *self._called(prog_name or "strom", words)))
            code = error.exit_code
        except typer.Abort:
            output.show_error(["strom: interrupted"])
            code = 1
        except Exception as error:
            if os.environ.get(TRACEBACK) or _cannot_write(error):
                raise
            output.show_error(
                [
                    f"strom: this is a bug in strom: {type(error).__name__}: {error}",
                    f"next: report it with the output of: {TRACEBACK}=1 strom ...",
                ]
            )
            code = 1
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def _called(self, name: str, words: Sequence[str]) -> tuple[str, Any]:
        """The command for these arguments, and its path."""
        path: list[str] = [name]
        command: Any = self
        for word in words:
            group = command if isinstance(command, TyperGroup) else None
            subcommand = group.get_command(typer.Context(group), word) if group else None
            if subcommand is not None:
                path.append(subcommand.name or word)
                command = lazy.loaded(subcommand)
        return " ".join(path), command

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """The commands of this distribution, then those of other distributions by name."""
        own = super().list_commands(ctx)
        others = {entry.name for entry in installed_commands.entry_points()}
        return own + sorted(others - set(own))

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """The command with this name, not imported yet; None if it does not exist."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for entry in installed_commands.entry_points():
            if entry.name == cmd_name:
                return installed_commands.InstalledCommand(entry)
        return None


app = typer.Typer(
    name="strom",
    cls=Root,
    help="The command line of Stromboli: gang-scheduled jobs in queues.",
    rich_markup_mode=lazy.STYLE,
)


@app.callback()
def _common(
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with a bearer token. [default: STROM_TOKEN, STROM_TOKEN_FILE]",
        ),
    ] = None,
    ca_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="PEM file with the CA certificate of the server. [default: STROM_CA_FILE]",
        ),
    ] = None,
) -> None:
    """Options before the command; they apply to every command."""
    from stromboli.cli import options

    options.CREDENTIALS.set((token_file, ca_file))


def main() -> None:
    """The entry point of the script ``strom``."""
    _run("strom")


def plugin() -> None:
    """The entry point of ``kubectl-strom``, which implements ``kubectl strom``."""
    _run("kubectl strom")


def complete_plugin() -> None:
    """The entry point of ``kubectl_complete-strom``, which completes ``kubectl strom``.

    Its arguments are those typed so far. It prints one completion per line, and then ``:4``: no
    file names.
    """
    words = sys.argv[1:]
    os.environ |= {
        "_STROM_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(["strom", *words]),
        "COMP_CWORD": str(len(words)),
    }
    try:
        app(prog_name="strom")
    finally:
        output.show_lines([":4"])


def _run(name: str) -> None:
    try:
        try:
            app(prog_name=name)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # during an import, before the command runs
        output.show_error(["strom: interrupted"])
        sys.exit(INTERRUPTED)
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and not _cannot_write(error):
            raise
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(BROKEN_PIPE)
        output.show_error(
            [f"strom: output: {error.strerror}", "next: write to another file or device"]
        )
        sys.exit(REFUSED)


def _cannot_write(error: Exception) -> bool:
    """Whether the error is about stdout, such as a full disk. Errors about other files name the
    file.
    """
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return isinstance(error, OSError) and error.errno in full and error.filename is None


def _usage_error_lines(error: typer.TyperException, path: str, called: Any) -> list[str]:
    """The error and the next step. ``called``: the command at ``path``, for errors without a
    context, such as a missing value of an option.
    """
    from stromboli.cli import usage_errors

    context = getattr(error, "ctx", None)
    path = context.command_path if context else path
    message = usage_errors.parser_message(error)
    command = path.removeprefix("kubectl ").removeprefix("strom").strip()
    what = f"strom: {command}: {message}" if command else f"strom: {message}"
    if context and isinstance(context.command, TyperGroup) and message.startswith("No such option"):
        if getattr(error, "option_name", "") == "--version":
            return [what, "next: strom version"]
        return [what, f"next: put options after the command; see {path} --help"]
    if context and (fields := usage_errors.fields_help(error, context.command)):
        return [what, f"next: {fields}"]
    if context and (instead := usage_errors.sbatch_help(error, context.command)):
        return [what.partition("; did you mean")[0], f"next: {instead}"]
    about = usage_errors.option_help(error, called)
    return [what, *about, f"next: see {path} --help"]
