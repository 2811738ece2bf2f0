"""What the page of the experiments says of real kubelets: one repeat of what the scheduler alone
decides."""

from pathlib import Path

import pytest

from experiments.kubelets import __main__ as program
from experiments.kubelets import cluster
from stromboli.testkit.parts.tools import KubeletTools, Tools

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(600)]


def test_tasks_with_affinity_share_nodes_and_spare_the_link(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path: Path
) -> None:
    """Of three jobs two have a node for themselves, so that at most half of the third job's pairs
    are apart. Five jobs with room for two end one after another."""
    variants = program.VARIANTS["task_topology_on_kubelets"]
    with cluster.running(tmp_path / "run") as running:
        apart = {
            name: running.run(variant.count, variant.create)
            for name, variant in variants.items()
            if name.startswith("Stromboli")
        }
        five = program.VARIANTS["gang_on_kubelets"]["5 jobs, Stromboli"]
        gangs = running.run(five.count, five.create)
    with_affinity = apart["Stromboli, task-topology"]
    assert len(with_affinity.jcts_s) == len(gangs.jcts_s) - 2 == 3
    assert with_affinity.apart <= 0.5
    assert with_affinity.link_mb < apart["Stromboli"].link_mb / 2
