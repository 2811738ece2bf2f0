"""``strom up``: its options."""

from pathlib import Path
from typing import Annotated

import typer

from stromboli.embedded import state_folder
from stromboli.embedded.processes import isolation_help


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
    isolate: Annotated[bool, typer.Option("--isolate", help=isolation_help.ISOLATE_HELP)] = False,
    visible: Annotated[list[Path] | None, typer.Option(help=isolation_help.VISIBLE_HELP)] = None,
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
            help="File of accounts and RBAC roles, whose tokens REST requires. [default: none; "
            "one user has all rights, and strom finds its token automatically]",
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
            help="Origin from which process nodes may fetch data sets, such as s3://bucket/path. "
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
    from stromboli.embedded import up

    up.up(
        nodes=nodes,
        process_nodes=process_nodes,
        isolate=isolate,
        visible=visible,
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        rules=rules,
        config=config,
        state=state,
        port=port,
        console=console,
        console_port=console_port,
        accounts=accounts,
        notifications=notifications,
        data_origins=data_origins,
        data_capacity=data_capacity,
        verbose=verbose,
        fault_seed=fault_seed,
    )
