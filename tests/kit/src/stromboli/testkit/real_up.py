"""``make real-up`` and ``make real-down``: run the whole system on real parts in the background.

``up`` starts a supervising process and returns once everything is ready; ``down`` stops this
process (identified by pid and start time), which stops all others.
"""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from stromboli.shared.runtime import runtime
from stromboli.testkit.parts import kubelets, process, tools
from stromboli.testkit.parts.container_images import BUSYBOX
from stromboli.testkit.real_system import RealSystem

app = typer.Typer(add_completion=False, no_args_is_help=True)
State = Annotated[Path, typer.Option(help="Folder for all state and logs.")]
DEFAULT_STATE = Path(".strom/real")
READY_WITHIN_S = 120.0


class Running(msgspec.Struct, frozen=True):
    """What the supervising process reports when everything is ready."""

    pid: int
    started_ticks: int
    kubeconfig: str
    rest: str
    kafka: str
    nodes: int


def _read(state: Path) -> Running | None:
    try:
        running = msgspec.json.decode((state / "running.json").read_bytes(), type=Running)
    except (OSError, msgspec.DecodeError):
        return None
    identity = process.Identity(running.pid, running.started_ticks)
    return running if process.identify(running.pid) == identity else None


async def _keep(state: Path, nodes: int, simulated: int, with_kubelets: int) -> None:
    system = RealSystem(state, fake_nodes=nodes, simulated_nodes=simulated, kubelets=with_kubelets)
    async with system:
        identity = process.identify(_own_pid())
        if identity is None:
            raise RuntimeError("this platform does not report start times of processes; use Linux")
        running = Running(
            identity.pid,
            identity.started_ticks,
            str(system.parts.kubeconfig),
            system.url,
            system.parts.kafka_bootstrap,
            nodes + simulated + with_kubelets,
        )
        partial = state / "running.json.part"
        partial.write_bytes(msgspec.json.encode(running))
        partial.rename(state / "running.json")
        await asyncio.Event().wait()


def _own_pid() -> int:
    return int(Path("/proc/self").resolve().name)


@app.command()
def keep(state: State, nodes: int = 0, simulated: int = 0, with_kubelets: int = 0) -> None:
    """Run the system until stopped: the supervising process that ``up`` starts."""
    runtime.run(lambda: _keep(state, nodes, simulated, with_kubelets))


@app.command()
def up(
    nodes: Annotated[
        int, typer.Option(help="Fake nodes (KWOK), on which pods run indefinitely.")
    ] = 100,
    simulated: Annotated[int, typer.Option(help="Simulated nodes, on which pods end.")] = 4,
    with_kubelets: Annotated[
        int, typer.Option("--kubelets", help="Nodes with kubelet and containerd (root, Linux).")
    ] = 0,
    state: State = DEFAULT_STATE,
) -> None:
    """Start the system and print its addresses."""
    if running := _read(state):
        typer.echo(f"runs already: REST {running.rest}, kubeconfig {running.kubeconfig}")
        return
    try:
        tools.locate()
        if with_kubelets:
            tools.locate_kubelets()
    except tools.RealPartsMissingError as error:
        raise SystemExit(str(error)) from None
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    log = state / "keeper.log"
    arguments = [
        "keep",
        "--nodes",
        str(nodes),
        "--simulated",
        str(simulated),
        "--with-kubelets",
        str(with_kubelets),
        "--state",
        str(state),
    ]
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "stromboli.testkit.real_up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + READY_WITHIN_S
    while (started := _read(state)) is None:
        if keeper.poll() is not None or time.monotonic() > deadline:
            keeper.terminate()
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise SystemExit(f"the system did not start; the end of {log}:\n{tail}")
        time.sleep(0.1)
    typer.echo(f"REST        {started.rest}")
    typer.echo(f"kubeconfig  {started.kubeconfig}")
    typer.echo(f"Kafka       {started.kafka}")
    typer.echo(f"nodes       {started.nodes}")
    if with_kubelets:
        typer.echo(f"containers  on kubelet-0 and so on, without a registry: image {BUSYBOX}")
    typer.echo(
        f"try         STROM_SERVER={started.rest} .venv/bin/strom apply -f examples/gang.yaml"
    )


@app.command()
def down(state: State = DEFAULT_STATE) -> None:
    """Stop the system that ``up`` started."""
    running = _read(state)
    if running is None:
        typer.echo("nothing runs")
        return
    asyncio.run(process.end(process.Identity(running.pid, running.started_ticks), grace_s=30.0))
    kubelets.undo_ended()  # in case the supervising process was killed
    (state / "running.json").unlink(missing_ok=True)
    typer.echo("stopped")


if __name__ == "__main__":
    app()
