"""The charts on real kubelets: pods of images built here, Ready by their own probes.

The tests run in their order: install, jobs, upgrade, rollback, history, console, uninstall.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from stromboli.testkit.parts import ports, postgres
from stromboli.testkit.parts.container_images import BUSYBOX
from stromboli.testkit.parts.engine.daemon import Engine
from stromboli.testkit.parts.forwarder import Forwarder
from stromboli.testkit.parts.tools import EngineTools, KubeletTools, Tools
from tests.charts.support import helm, install_guide, kubelet_cluster, rbac_rights
from tests.charts.support.kubelet_cluster import KubeletCluster

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
UNTIL_THE_FILE_EXISTS = "until test -e /tmp/done; do sleep 0.2; done"
ACCOUNT = "system:serviceaccount:stromboli:"


@pytest.fixture(scope="module")
def archive(
    real_tools: Tools, engine_tools: EngineTools, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The images, for the nodes."""
    path = tmp_path_factory.mktemp("images") / "images.tar"

    async def save() -> None:
        async with Engine(engine_tools, tmp_path_factory.mktemp("engine")) as engine:
            await asyncio.to_thread(kubelet_cluster.save_images, engine, real_tools, path)

    asyncio.run(save())
    return path


@pytest.fixture(scope="module")
def cluster(
    real_tools: Tools,
    kubelet_tools: KubeletTools,
    archive: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubeletCluster]:
    """With the guide's trial installation."""
    state = tmp_path_factory.mktemp("cluster")
    with asyncio.Runner() as runner:
        made = KubeletCluster(real_tools, kubelet_tools, state, archive)
        runner.run(made.start())
        try:
            kubelet_cluster.install(made)
            yield made
        finally:
            runner.run(made.stop())


def job(name: str, script: str, pods: int = 2) -> dict[str, Any]:
    """A gang of containers that run a script."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "50m"}},
    }
    task = {
        "name": "work",
        "replicas": pods,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": pods, "tasks": [task]},
    }


def pods_of(cluster: KubeletCluster, service: str) -> list[dict[str, Any]]:
    """The pods of a service that are not being deleted."""
    label = f"app.kubernetes.io/name=stromboli-{service}"
    items = cluster.get(f"pods --namespace stromboli --selector {label}")["items"]
    return [each for each in items if "deletionTimestamp" not in each["metadata"]]


@pytest.mark.parametrize("service", helm.SERVICES)
def test_both_replicas_of_a_service_are_ready(service: str, cluster: KubeletCluster) -> None:
    """An active one and a standby, on different nodes."""
    pods = pods_of(cluster, service)
    (first, second) = [pod["status"]["containerStatuses"][0] for pod in pods]
    assert (first["ready"], second["ready"]) == (True, True)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == kubelet_cluster.NODES


def test_a_gang_runs_to_its_end(cluster: KubeletCluster) -> None:
    """The API server calls the webhooks in the pods: a field that the user left out is set."""
    cluster.apply(job("gang", "sleep 1"))
    assert cluster.get("vcjob gang")["spec"]["schedulerName"] == "volcano"
    cluster.comes_to("gang", "Completed")
    pods = cluster.get("pods --selector volcano.sh/job-name=gang")["items"]
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"] * 2


def test_services_are_denied_nothing(cluster: KubeletCluster) -> None:
    """With the tokens of their own service accounts and the roles of the charts."""
    requests = list(rbac_rights.audited_requests(cluster.api_server.audit_log))
    ours = [each for each in requests if each.user.startswith(ACCOUNT)]
    active = {each.user.removeprefix(f"{ACCOUNT}stromboli-") for each in ours}
    assert active == set(helm.SERVICES) - {"scheduler"}
    assert [str(each.right) for each in ours if not each.is_allowed] == []


def test_an_upgrade_and_a_rollback_leave_a_running_job_alone(cluster: KubeletCluster) -> None:
    """Every pod of the services is replaced, twice; the job's pods are not, and it ends well."""
    cluster.apply(job("running", UNTIL_THE_FILE_EXISTS))
    cluster.comes_to("running", "Running")
    jobs_pods = "pods --selector volcano.sh/job-name=running"
    before = [pod["metadata"]["uid"] for pod in cluster.get(jobs_pods)["items"]]
    options = " ".join(f"--set {each}.podAnnotations.build=new" for each in helm.SERVICES)
    command = "stromboli charts/stromboli --namespace stromboli --reuse-values"
    for way in (f"helm upgrade {command} {options}", "helm rollback stromboli 1 -n stromboli"):
        replaced = {
            pod["metadata"]["uid"] for each in helm.SERVICES for pod in pods_of(cluster, each)
        }
        cluster.sh(way)
        cluster.rolled_out()
        now = {pod["metadata"]["uid"] for each in helm.SERVICES for pod in pods_of(cluster, each)}
        assert not replaced & now
    found = cluster.get(jobs_pods)["items"]
    assert [pod["metadata"]["uid"] for pod in found] == before
    for pod in found:
        cluster.sh(f"kubectl exec {pod['metadata']['name']} -- sh -c ': > /tmp/done'")
    cluster.comes_to("running", "Completed")


@pytest.fixture
def database(cluster: KubeletCluster, tmp_path: Path) -> Iterator[str]:
    """Where pods reach an empty PostgreSQL: user, host, port and database."""
    network = cluster.kubelets.network
    with postgres.running() as server, asyncio.Runner() as runner:
        url = urlsplit(server.new_database())
        way = Forwarder(tmp_path, network.name, network.gateway, server.port, lambda: server.port)
        runner.run(way.start())
        yield f"{url.username}@{network.gateway}:{server.port}{url.path}"
        runner.run(way.stop())


def test_the_history_answers_users_through_admission(
    cluster: KubeletCluster, database: str
) -> None:
    """Installed by the guide's commands; asked through a forwarded port, as the guide has it."""
    cluster.write_values(
        {"global": {"image": {"registry": kubelet_cluster.REGISTRY}, "kafka": KAFKA}}
    )
    history = install_guide.block("history", "history.md")
    example = "stromboli@database.example.com/history"
    assert example in history
    cluster.sh(history.replace(example, database), DATABASE_PASSWORD="not-asked-for")
    admission = install_guide.block("admission", "history.md").strip()
    cluster.sh(f"{admission} --set admission.rest.enabled=true")
    cluster.rolled_out()
    (port,) = ports.free_ports(1)
    cluster.sh(install_guide.block("authority") + ACCOUNTS)
    found = cluster.sh(ASK, PORT=str(port))
    assert "Succeeded" in found


KAFKA = {"bootstrap": ["stromboli-kafka.stromboli.svc:9092"], "replicationFactor": 1}
"""The broker of the trial, for a release of its own."""
ACCOUNTS = """
kubectl create serviceaccount trainer
kubectl create clusterrolebinding trainer --clusterrole=cluster-admin \\
  --serviceaccount=default:trainer
"""
ASK = """
service=service/stromboli-admission
kubectl --namespace stromboli port-forward $service $PORT:8480 >forward.log 2>&1 &
trap "kill $!" EXIT
until grep -q Forwarding forward.log; do sleep 0.1; done
export STROM_SERVER=https://localhost:$PORT STROM_CA_FILE=stromboli.crt
export STROM_TOKEN=$(kubectl create token trainer --audience stromboli)
for attempt in $(seq 50); do
  if strom history gang | grep -q Succeeded; then break; fi
  sleep 0.3
done
strom history gang
"""


def test_the_console_shows_jobs_with_the_rights_of_its_viewer(cluster: KubeletCluster) -> None:
    """Installed by the guide's commands, over the REST of the test before, whose certificate and
    account are still there; reached through a forwarded port."""
    cluster.sh(install_guide.block("console", "console.md"))
    cluster.rolled_out()
    (port,) = ports.free_ports(1)
    assert "/jobs/default/gang" in cluster.sh(BROWSE, PORT=str(port))


BROWSE = """
service=service/stromboli-console
kubectl --namespace stromboli port-forward $service $PORT:8487 >console.log 2>&1 &
trap "kill $!" EXIT
until grep -q Forwarding console.log; do sleep 0.1; done
curl --silent --fail --cookie-jar cookies http://127.0.0.1:$PORT/login \
  --data-urlencode "token=$(kubectl create token trainer --audience stromboli)"
curl --silent --fail --cookie cookies http://127.0.0.1:$PORT/jobs
"""


def test_uninstalling_leaves_definitions_and_jobs(cluster: KubeletCluster) -> None:
    """The last test here."""
    cluster.sh("helm uninstall $(helm list -n stromboli --short) --namespace stromboli --wait")
    cluster.until(lambda: cluster.get("pods --namespace stromboli")["items"] == [])
    kept = {each["metadata"]["name"] for each in cluster.get("vcjob")["items"]}
    assert kept >= {"gang", "running"}
    assert cluster.phase("gang") == "Completed"
    assert cluster.get("deployments --namespace stromboli")["items"] == []
