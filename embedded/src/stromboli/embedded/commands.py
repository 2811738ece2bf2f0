"""``strom up`` and ``strom demo``: the commands that start an embedded system."""

import asyncio
import contextlib
import logging
import sys
import tempfile
from errno import EADDRINUSE
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stromboli.cli.errors import CommandError
from stromboli.embedded import accounts as account_files
from stromboli.embedded import console_server, scheduler_file, state_folder, system
from stromboli.embedded.cluster import OWN_NAME
from stromboli.embedded.demo import experiment, real, report, traffic
from stromboli.embedded.nodes import rules as rule_files
from stromboli.embedded.nodes import simulated
from stromboli.embedded.processes import machine
from stromboli.history.notifications import targets
from stromboli.monitor.data_cache.allowed import AllowedOrigins
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import errors
from stromboli.shared.formats import units
from stromboli.shared.jobspec import data_sets
from stromboli.shared.runtime import runtime, telemetry

HIDDEN_RESOURCES = ("pods", "ephemeral-storage")
"""Resources of nodes that the start does not print."""
REMEMBERED = "server"
"""File in the state folder with the REST address; ``strom`` finds it from folders below."""
DEMO_LOG = "demo.log"
USUAL_NODES, USUAL_CPU, USUAL_MEMORY = 4, "8", "32Gi"
FIRST_JOB_PODS = 4
"""Maximum pods of the job that the start suggests."""
PLAIN_WIDTH = 110
"""Width in columns without a terminal."""


def up(
    nodes: Annotated[
        int | None,
        typer.Option(
            min=0, help="Simulated nodes at the start. [default: 4; 0 with --process-nodes]"
        ),
    ] = None,
    process_nodes: Annotated[
        int,
        typer.Option(
            min=0,
            help="Nodes that run commands as processes of this machine, without images.",
        ),
    ] = 0,
    isolate: Annotated[bool, typer.Option("--isolate", help=machine.ISOLATE_HELP)] = False,
    visible: Annotated[list[Path] | None, typer.Option(help=machine.VISIBLE_HELP)] = None,
    cpu: Annotated[
        str,
        typer.Option(help="Cores of each node. [default: 8; process nodes share the machine's]"),
    ] = "",
    memory: Annotated[
        str,
        typer.Option(help="Memory of each node. [default: 32Gi; or a share of the machine's]"),
    ] = "",
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each node (nvidia.com/gpu).")] = 0,
    rules: Annotated[
        Path | None,
        typer.Option(
            exists=True, help="File of rules for simulated nodes: run time and exit code of pods."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            help="Scheduler configuration, as volcano-scheduler.conf; changes apply immediately. "
            "[default: the built-in one]",
        ),
    ] = None,
    state: Annotated[
        Path, typer.Option(help="Folder of the log, the cluster and all other state.")
    ] = state_folder.STATE,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of REST; 0 takes a free one. [default: 8480, or the next free]",
        ),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="Serve the web console, too.")
    ] = True,
    console_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the web console; 0 takes a free one. [default: 8487, or the next free]",
        ),
    ] = None,
    accounts: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            help="File of accounts and RBAC roles, whose tokens REST requires. [default: none, "
            "one user with all rights, whose token strom finds automatically]",
        ),
    ] = None,
    notifications: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            help="TOML file with the targets of notifications about jobs. [default: none]",
        ),
    ] = None,
    data_origins: Annotated[
        list[str] | None,
        typer.Option(
            "--data-origin",
            help="Origin from which process nodes may fetch data sets, as s3://bucket/path; "
            "May be repeated. [default: https:// and file:///]",
        ),
    ] = None,
    data_capacity: Annotated[
        str,
        typer.Option(
            help="Disk space of each process node's cache of data sets, as 20Gi. [default: an "
            "equal share of half of the free disk]"
        ),
    ] = "",
    verbose: Annotated[bool, typer.Option("--verbose", help="Log at debug level.")] = False,
    fault_seed: Annotated[
        int | None,
        typer.Option(help="For tests: delay, duplicate and reorder records, with this seed."),
    ] = None,
) -> None:
    """Start the whole system in one process.

    It has an embedded log and cluster, simulated nodes, and nodes that run processes.
    Ctrl-C stops it; the next `strom up` on the same folder continues where it stopped.
    """
    telemetry.configure_logs(logging.INFO if verbose else logging.WARNING)
    scheduler_file.read(str(config) if config else None)
    try:
        options = system.Options(
            state=state_folder.embedded(state),
            nodes=tuple(
                simulated.node_documents(
                    (0 if process_nodes else USUAL_NODES) if nodes is None else nodes,
                    cpu=cpu or USUAL_CPU,
                    memory=memory or USUAL_MEMORY,
                    gpus=gpus,
                )
            ),
            process_nodes=tuple(
                machine.node_documents(process_nodes, machine.resources(), cpu=cpu, memory=memory)
            ),
            rules=rule_files.read_rules(rules) if rules else rule_files.Rules(),
            port=system.USUAL_PORT if port is None else port,
            port_may_move=port is None,
            fault_seed=fault_seed,
            accounts=account_files.read(accounts, OWN_NAME) if accounts else None,
            scheduler=SchedulerSettings(configuration=str(config) if config else ""),
            notifications=_notifications(notifications),
            data_origins=_data_origins(data_origins),
            data_capacity_bytes=data_sets.size_bytes(data_capacity),
            visible=_visible(visible, process_nodes, isolate=isolate),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    pages = console_server.Options(
        port=console_server.USUAL_PORT if console_port is None else console_port,
        port_may_move=console_port is None,
    )
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        runtime.run(lambda: _up(options, state, pages if console else None))
    except (OSError, errors.ExternalError, machine.UnsupportedMachineError) as error:
        if isinstance(error, OSError) and error.errno == EADDRINUSE:
            next_step = "stop the process that listens there, set another port, or omit --port"
            raise CommandError(f"up: port {options.port}", "it is in use", next_step) from None
        if isinstance(error, OSError) and error.filename and error.strerror:
            next_step = "set another folder: strom up --state FOLDER"
            raise CommandError(f"up: {error.filename}", error.strerror, next_step) from None
        typer.echo(f"strom: up: {error}", err=True)
        raise typer.Exit(1) from None


def _data_origins(uris: list[str] | None) -> tuple[str, ...]:
    """The origins of ``--data-origin``. Raises ValueError for one that is not a URI."""
    if uris is None:
        return system.DATA_ORIGINS
    AllowedOrigins(uris)
    return tuple(uris)


def _visible(paths: list[Path] | None, process_nodes: int, *, isolate: bool) -> list[str] | None:
    """The paths of ``--visible``, None without ``--isolate``. Raises ValueError."""
    if isolate and not process_nodes:
        raise ValueError("--isolate has no effect without --process-nodes: only these run commands")
    return machine.shown_paths(paths, isolate=isolate)


def _notifications(file: Path | None) -> str:
    """The path of the file of ``--notifications``, after a check of its content; empty without one.
    Raises ValueError."""
    if file is None:
        return ""
    try:
        targets.load(str(file))
    except errors.ConfigurationError as error:
        raise ValueError(f"{file}: {error.reason}") from None
    return str(file)


async def _up(options: system.Options, state: Path, pages: console_server.Options | None) -> None:
    remembered = state / REMEMBERED
    _progress(f"starting: log and cluster in {options.state}")
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(system.run_system(options))
        remembered.write_text(f"{running.url}\n")
        if options.port_may_move and not running.url.endswith(f":{options.port}"):
            typer.echo(
                f"strom: up: port {options.port} is in use, so REST has another one", err=True
            )
        await _ready(running)
        typer.echo(f"REST   {running.url}   (OpenAPI: {running.url}/schema)")
        if pages is not None:
            console_status = await stack.enter_async_context(console_server.serving(running, pages))
            typer.echo(f"web    {console_status}")
        typer.echo(f"state  {options.state}")
        for line in node_sizes(options):
            typer.echo(f"nodes  {line}")
        isolated = options.visible is not None
        for line in machine.describe_isolation(
            *running.view, machine.image_runtime(), isolated=isolated
        ):
            typer.echo(line)
        typer.echo(f"next   {first_job(options)}    Ctrl-C stops")
        try:
            await asyncio.Event().wait()
        finally:
            remembered.unlink(missing_ok=True)


def node_sizes(options: system.Options) -> list[str]:
    """The number and the size of the nodes: a pod that requests more never starts."""
    lines = []
    for word, nodes in (("simulated", options.nodes), ("process", options.process_nodes)):
        if nodes:
            size = nodes[0]["status"]["allocatable"]
            resources = ", ".join(
                f"{name} {amount}" for name, amount in size.items() if name not in HIDDEN_RESOURCES
            )
            lines.append(f"{len(nodes)} {word}, each with {resources}")
    return lines


def first_job(options: system.Options) -> str:
    """The suggested first command: at most four pods, and a gang that the nodes have room for.

    Simulated nodes run no commands, so their pods get a duration instead.
    """
    nodes = (*options.nodes, *options.process_nodes)
    cpus: list[str] = [node["status"]["allocatable"]["cpu"] for node in nodes]
    room = sum(int(units.quantity(cpu)) for cpu in cpus)  # a pod requests one core
    size = f"--replicas {min(room, FIRST_JOB_PODS)}"
    if not room:
        size = f"--cpus {max(cpus, key=units.quantity, default='1')}"
    does = "-- echo hello" if options.process_nodes else "--run-seconds 2"
    return f"strom job run hello {size} {does}"


def _progress(line: str) -> None:
    """Print a progress line on stderr for users; stdout has only the final output."""
    if sys.stderr.isatty():
        typer.echo(line, err=True)


async def _ready(running: system.System) -> None:
    """Wait until every service is ready; print each as it becomes ready."""

    async def show(health: runtime.Health) -> None:
        await health.ready()
        _progress(f"ready: {health.service}")

    async with asyncio.TaskGroup() as group:
        for health in running.healths:
            group.create_task(show(health))


def demo() -> None:
    """Compare gang scheduling with scheduling by pod.

    It shows why gangs need a gang scheduler, in about a minute and in this process.
    """
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    with tempfile.TemporaryDirectory(prefix="strom-demo-") as folder:
        state = Path(folder)
        log = (state / DEMO_LOG).open("w")
        telemetry.configure_logs(stream=log)
        with log, asyncio.Runner() as runner:
            failures = runner.run(_demo(console, state))
    if failures:
        for line in failures:
            console.print(f"[red]check failed:[/red] {line}")
        raise typer.Exit(1)
    console.print("\nNext: strom up starts this system for your own jobs.", highlight=False)


async def _demo(console: Console, state: Path) -> list[str]:
    console.print(
        "A job is 2 parameter servers and 4 workers that wait for each other; "
        f"there is room for {experiment.ROOM} pods.\n"
        "Jobs go through admission, monitor, scheduler and controller, all in this process.\n"
    )
    trials: list[experiment.Trial] = []
    for jobs in (1, 2, 5):
        for gang in (False, True):
            how = "as gangs" if gang else "pods one by one"
            with report.View(console, f"{jobs} jobs, {how}") as view:
                folder = state / f"{jobs}-{gang}"
                trials.append(await experiment.trial(folder, jobs, view.show, gang=gang))
            console.print(report.line(trials[-1]), highlight=False)
    console.print()
    console.print(report.summary(trials))
    with report.View(console, "5 jobs as gangs, everything restarted in the middle") as view:
        restarted, reasons = await experiment.restarted_trial(state / "restart", 5, view.show)
    console.print("\nWhy does the last job wait? `strom explain` says:")
    for line in reasons:
        console.print(f"  {line}", highlight=False, markup=False)
    console.print(
        f"\nEverything was stopped after the first job and started again: "
        f"{restarted.finished} of {restarted.jobs} jobs finished, nothing was lost."
        if restarted.finished == restarted.jobs
        else "\nAfter a restart of everything not all jobs finished."
    )
    apart, near = await traffic.measure_traffic(state / "traffic")
    for line in report.traffic(apart, near):
        console.print(line, highlight=False)
    console.print(
        "\nSo far nodes only simulated pods. Now real jobs: their commands run as processes of "
        "this machine,\neach with an address of its own, and find each other by name.\n"
    )
    real_jobs_result = await real.show(state / "real")
    for line in report.real_jobs(real_jobs_result):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    stayed = (
        []
        if near > apart
        else [f"{near:.0%} of the traffic stayed inside a node, no more than without task-topology"]
    )
    return [*report.failures([*trials, restarted], reasons), *stayed, *real_jobs_result.failures]
