"""``python -m stromboli.embedded.processes``: process nodes on a real API server.

They run commands as processes of this machine, without images. When the program stops, all
processes are killed.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from stromboli.embedded.processes import agent, data_caches, isolation_help, kubelet, machine
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.runtime import runtime, telemetry

DATA_ORIGINS = ("https://", "file:///")
"""Pods run commands as this user, who can read all of these anyway."""


async def _run(
    kubernetes: KubernetesSettings,
    nodes: list[dict[str, object]],
    state: Path,
    visible_paths: list[str] | None,
) -> None:
    view, reason = await machine.view()
    images = machine.image_runtime()
    visible = (
        None if visible_paths is None else await machine.isolating(view, reason, visible_paths)
    )
    for line in machine.describe_isolation(view, reason, images, isolated=visible is not None):
        typer.echo(line)
    async with KubernetesCluster(kubernetes) as cluster:
        settings = data_caches.settings_for(
            nodes, shutil.disk_usage(state).free, DATA_ORIGINS, capacity_bytes=0
        )
        names = [str(cast("dict[str, Any]", document["metadata"])["name"]) for document in nodes]
        caches = data_caches.DataCaches(names, state / "data", settings, runtime.utc_now, None)
        served = agent.ProcessNodeAgent(
            cluster, nodes, state / "pods", runtime.utc_now, view, images, caches, visible
        )
        async with kubelet.serving(served, state):
            await served.run()


def main(
    nodes: Annotated[int, typer.Option(help="Number of nodes to add.", min=1)] = 2,
    cpu: Annotated[str, typer.Option(help="Cores of each node. [default: an equal share]")] = "",
    memory: Annotated[
        str, typer.Option(help="Memory of each node. [default: an equal share]")
    ] = "",
    prefix: Annotated[str, typer.Option(help="Prefix of the nodes' names.")] = "process",
    state: Annotated[
        Path | None, typer.Option(help="Folder for the pods' files. [default: for this run only]")
    ] = None,
    kubeconfig: Annotated[str, typer.Option(help="Path of the kubeconfig.")] = "",
    isolate: Annotated[bool, typer.Option("--isolate", help=isolation_help.ISOLATE_HELP)] = False,
    visible: Annotated[list[Path] | None, typer.Option(help=isolation_help.VISIBLE_HELP)] = None,
) -> None:
    """Add process nodes to a cluster and run their pods until stopped."""
    telemetry.configure_logs()
    try:
        machine.check()
        visible_paths = machine.shown_paths(visible, isolate=isolate)
        documents = machine.node_documents(
            nodes, machine.resources(), cpu=cpu, memory=memory, prefix=prefix
        )
    except (ValueError, machine.UnsupportedMachineError) as error:
        raise typer.BadParameter(str(error)) from None
    settings = KubernetesSettings(kubeconfig=kubeconfig)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        folder = state or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strom-")))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            runtime.run(lambda: _run(settings, documents, folder.resolve(), visible_paths))
        except machine.UnsupportedMachineError as error:
            typer.echo(f"process nodes: {error}", err=True)
            raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
