"""Sessions in a pod of a real kubelet and containerd, through a real API server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stromboli.shared.cluster.kubernetes import pod_sessions
from stromboli.shared.cluster.kubernetes.settings import KubernetesSettings
from stromboli.shared.cluster.pod_sessions import PodSessions
from stromboli.testkit.contracts.pod_sessions import POD, PodSessionsContract
from stromboli.testkit.parts.container_images import BUSYBOX
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import KubeletSystem

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(300)]
PORT = 5000


@pytest.fixture(scope="module")
def system(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletSystem]:
    state = tmp_path_factory.mktemp("kubelets")
    with kubelet_system.running(state, real_tools, {}) as opened:
        _create_pod(opened, state)
        yield opened


def _create_pod(system: KubeletSystem, folder: Path) -> None:
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", f"exec nc -ll -p {PORT} -e cat"],
        "workingDir": "/tmp",
        "env": [{"name": "GREETING", "value": "hello"}],
    }
    spec = {
        "nodeName": "kubelet-0",
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
    }
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": spec}
    file = folder / "pod.json"
    file.write_text(json.dumps(document))
    system.kubectl("apply", "-f", str(file))
    system.kubectl("wait", "pod", POD, "--for=condition=Ready", "--timeout=60s")


class TestKubernetesPodSessions(PodSessionsContract):
    @pytest.fixture
    def listening_port(self) -> int:
        return PORT

    @pytest.fixture
    async def sessions(self, system: KubeletSystem) -> PodSessions:
        settings = KubernetesSettings(kubeconfig=str(system.kubeconfig))
        return pod_sessions.WebSocketPodSessions(await pod_sessions.kubeconfig_access(settings))
