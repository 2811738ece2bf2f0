"""``python -m stromboli.embedded.nodes``: simulated nodes on a real API server, for tests.

Pods bound to them run for the time in their annotation or in the rule file. When the program stops,
the nodes remain, but their pods make no progress.
"""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from stromboli.embedded.nodes import rules as rule_files
from stromboli.embedded.nodes import simulated
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.runtime import runtime, telemetry


async def _run(
    settings: KubernetesSettings, nodes: list[dict[str, object]], rules: rule_files.Rules
) -> None:
    async with KubernetesCluster(settings) as cluster:
        health = runtime.Health("nodes")
        await runtime.retry_until_available(
            lambda: simulated.create_nodes(cluster, nodes), "cluster", health
        )
        telemetry.log.info("simulated nodes are up", nodes=len(nodes))
        await simulated.Runner(cluster, rules, runtime.utc_now).run()


def main(
    nodes: Annotated[int, typer.Option(help="Number of nodes to add.")] = 4,
    cpu: Annotated[str, typer.Option(help="Cores of each node.")] = "8",
    memory: Annotated[str, typer.Option(help="Memory of each node.")] = "32Gi",
    gpus: Annotated[int, typer.Option(help="GPUs of each node (nvidia.com/gpu).")] = 0,
    prefix: Annotated[str, typer.Option(help="Prefix of the nodes' names.")] = "simulated",
    rules: Annotated[
        Path | None, typer.Option(help="File of rules: run time and exit code of pods.")
    ] = None,
    kubeconfig: Annotated[str, typer.Option(help="Path of the kubeconfig.")] = "",
) -> None:
    """Add simulated nodes to a cluster and run their pods until stopped."""
    telemetry.configure_logs()
    try:
        rule_set = rule_files.read_rules(rules) if rules else rule_files.Rules()
        documents = simulated.node_documents(
            nodes, cpu=cpu, memory=memory, gpus=gpus, prefix=prefix
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    settings = KubernetesSettings(kubeconfig=kubeconfig)
    with contextlib.suppress(KeyboardInterrupt):
        runtime.run(lambda: _run(settings, documents, rule_set))


if __name__ == "__main__":
    typer.run(main)
