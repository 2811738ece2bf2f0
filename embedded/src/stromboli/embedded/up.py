"""``strom up``: runs the whole system until Ctrl-C."""

import asyncio
import contextlib
import logging
import sys
from errno import EADDRINUSE
from pathlib import Path

import typer

from stromboli.cli.errors import CommandError
from stromboli.embedded import accounts as account_files
from stromboli.embedded import console_server, scheduler_file, state_folder, system
from stromboli.embedded.cluster import OWN_NAME
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
"""Resources of nodes that ``strom up`` does not print."""
REMEMBERED = "server"
"""File in the state folder with the REST address. ``strom`` also finds it when it runs in a folder
below."""
USUAL_NODES, USUAL_CPU, USUAL_MEMORY = 4, "8", "32Gi"
FIRST_JOB_PODS = 4
"""Maximum pods of the job that ``strom up`` suggests."""


def up(
    *,
    nodes: int | None,
    process_nodes: int,
    isolate: bool,
    visible: list[Path] | None,
    cpu: str,
    memory: str,
    gpus: int,
    rules: Path | None,
    config: Path | None,
    state: Path,
    port: int | None,
    console: bool,
    console_port: int | None,
    accounts: Path | None,
    notifications: Path | None,
    data_origins: list[str] | None,
    data_capacity: str,
    verbose: bool,
    fault_seed: int | None,
) -> None:
    """Start the system and wait for Ctrl-C. Raises CommandError and BadParameter."""
    telemetry.configure_logs(logging.INFO if verbose else logging.WARNING)
    scheduler_file.read(str(config) if config else None)
    for option, text in (("cpu", cpu), ("memory", memory), ("data-capacity", data_capacity)):
        _check_quantity(f"--{option}", text)
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


def _check_quantity(option: str, text: str) -> None:
    """Raise BadParameter with the option unless the text is empty or a quantity."""
    try:
        data_sets.size_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _data_origins(uris: list[str] | None) -> tuple[str, ...]:
    """The origins of ``--data-origin``. Raises ValueError for one that is not a URI."""
    if uris is None:
        return system.DATA_ORIGINS
    AllowedOrigins(uris)
    return tuple(uris)


def _visible(paths: list[Path] | None, process_nodes: int, *, isolate: bool) -> list[str] | None:
    """The paths of ``--visible``, None without ``--isolate``. Raises ValueError."""
    if isolate and not process_nodes:
        raise ValueError("--isolate has no effect without --process-nodes: add it")
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
                f"strom: up: port {options.port} is in use; REST listens on {running.url}", err=True
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
