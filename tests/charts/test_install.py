"""The charts on a real API server and a real broker, installed as the guide describes.

No kubelet runs here: the objects are created, and the services are started from them with the
service accounts of the charts.
"""

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from stromboli.shared.api import kinds
from stromboli.shared.bus.kafka import KafkaSettings, clients
from stromboli.testkit.parts import kubernetes, ports, tools
from tests.charts.support import control_plane, helm, install_guide, rbac_rights, rights_scenarios

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
in_one_loop = pytest.mark.asyncio(loop_scope="module")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control(
    real_tools: tools.Tools, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[control_plane.ControlPlane]:
    async with control_plane.running_control_plane(
        real_tools, tmp_path_factory.mktemp("charts")
    ) as running:
        yield running


def before(state: Path) -> Path:
    """The charts of the commit before, or as committed where that had none yet."""
    for commit in ("HEAD~1", "HEAD"):
        folder = state / "before"
        folder.mkdir(exist_ok=True)
        paths = ["charts", *(f"services/{service}/chart" for service in helm.SERVICES)]
        archive = subprocess.run(
            ["git", "archive", commit, "--", *paths],
            cwd=helm.ROOT,
            capture_output=True,
            check=False,
        )
        if archive.returncode == 0:
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            return folder
    raise AssertionError("neither this commit nor the one before has charts")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upgraded(control: control_plane.ControlPlane) -> str:
    """The history of one release that was installed from the previous commit and upgraded to this
    one; it is uninstalled.
    """
    trial = install_guide.block("trial")
    control.sh(trial, before(control.state))
    upgrade = trial.replace("helm install", "helm upgrade").replace("--create-namespace", "")
    control.sh(upgrade)
    status = control.sh("helm history stromboli --namespace stromboli --output yaml")
    control.sh("helm uninstall stromboli --namespace stromboli")
    control.sh("kubectl delete namespace stromboli --wait=false")
    return status


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(
    control: control_plane.ControlPlane, upgraded: str
) -> control_plane.ControlPlane:
    """The guide's commands, in its order."""
    await control.controllers.start()
    control.sh("kubectl wait --for=delete namespace/stromboli --timeout=240s")
    control.sh(install_guide.block("secrets"))
    control.sh(install_guide.block("install"))
    return control


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(installed: control_plane.ControlPlane) -> AsyncIterator[control_plane.Services]:
    async with control_plane.running_services(installed) as started:
        yield started


@in_one_loop
async def test_a_release_of_the_previous_commit_can_be_upgraded(upgraded: str) -> None:
    assert "status: deployed" in upgraded
    assert "revision: 2" in upgraded


@in_one_loop
async def test_the_guide_installs_everything(installed: control_plane.ControlPlane) -> None:
    listed = installed.sh("helm list --namespace stromboli --short").split()
    assert listed == ["stromboli-admission", "stromboli-base", "stromboli-controller",
                      "stromboli-monitor", "stromboli-scheduler"]  # fmt: skip


@in_one_loop
async def test_services_are_ready_by_the_probes_of_their_charts(
    running: control_plane.Services,
) -> None:
    """Under the settings of the guide: accounts and TLS at the broker, each a user of its own."""
    for pod in running.pods.values():
        assert await pod.passes("startupProbe")
        assert await pod.passes("livenessProbe")
        async with asyncio.timeout(240):
            while not await pod.passes("readinessProbe"):  # noqa: ASYNC110 - as kubelets do
                await asyncio.sleep(0.1)


CLAIMS = {
    "get persistentvolumes",
    "patch persistentvolumes",
    "patch persistentvolumeclaims",
    "get resourceclaims.resource.k8s.io",
    "patch resourceclaims.resource.k8s.io",
    "patch resourceclaims/status.resource.k8s.io",
}
"""What binding claims takes, which has tests of its own: no storage and no devices are here."""
AGENTS = {f"{verb} numatopologies.nodeinfo.volcano.sh" for verb in ("create", "get", "patch")}
"""What nodes' agents bring, which have tests of their own: there are no nodes' agents here."""
NETWORK = {
    f"{verb} hypernodes.topology.volcano.sh" for verb in ("create", "delete", "get", "patch")
}
"""For creating HyperNodes, which no file in this test requests, and looking them up for hard
topology constraints.
"""
LOOKS = {str(rbac_rights.Right(kind.group, kind.plural, "get")) for kind in kinds.WATCHED}
"""One line of the monitor's code for all kinds; a test waits until it has run."""
RARE = {
    "admission": {"list hypernodes.topology.volcano.sh"},
    "monitor": {"create tokenreviews.authentication.k8s.io", *LOOKS},
    "controller": {
        "get commands.bus.volcano.sh",
        "get cronjobs.batch.volcano.sh",
        "get hypernodes.topology.volcano.sh",
        "get jobflows.flow.volcano.sh",
        "get jobtemplates.flow.volcano.sh",
        "get persistentvolumeclaims",
        "get podgroups.scheduling.volcano.sh",
        "get pods",
        "write decisions.scheduling.stromboli.sh",  # asked by a policy, sent in no request
        "patch events",  # of an Event that occurs again, which depends on timing
        *AGENTS,
        *NETWORK,
        *CLAIMS,
    },
}
"""Needed only if a write meets an object that is not in the cache yet, as after a crash between two
steps: the object is read again. Users can cause this for some kinds, not for these.
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def audited(running: control_plane.Services) -> list[rbac_rights.AuditedRequest]:
    """All requests of the services, from their start on and while users did everything."""
    api_server = running.control.api_server
    monitor = running.pods["monitor"]
    async with api_server.client() as api:
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": rights_scenarios.NAMESPACE},
        }
        await api.create("/api/v1/namespaces", namespace)
        user = rights_scenarios.RightsScenarios(api)
        ways = (
            user.jobs,
            user.changes,
            user.tools,
            user.flows_and_crons,
            user.unmanaged_pods,
            user.queues_and_topology,
        )
        async with asyncio.TaskGroup() as tasks:
            for way in (*ways, user.rejections):
                tasks.create_task(way())
        await user.stale_cache(monitor.stop)
        await user.until("a look for what others wrote", lambda: _has_looked(api_server))
        await monitor.start()
        broker = running.control.broker.bootstrap
        await rights_scenarios.publish_stale_records(
            clients.connection(KafkaSettings(bootstrap=(broker,))), "default"
        )
        await user.until("a look for what is hidden", lambda: _has_looked_all(api_server))
    return list(rbac_rights.audited_requests(api_server.audit_log))


async def _has_looked(api_server: kubernetes.ApiServer) -> bool:
    """The controller, for the job and the queue that others changed behind its back."""
    got = {
        each.right.resource
        for each in rbac_rights.audited_requests(api_server.audit_log)
        if each.user == control_plane.account("controller")
        and each.right.verb == "get"
        and each.right.name == "blind"
    }
    return got >= {"jobs", "queues"}


async def _has_looked_all(api_server: kubernetes.ApiServer) -> bool:
    """The monitor, for records that a fenced writer hides."""
    got = {
        each.right.resource
        for each in rbac_rights.audited_requests(api_server.audit_log)
        if each.user == control_plane.account("monitor") and each.right.name == "hidden"
    }
    return len(got) > 1


@in_one_loop
@pytest.mark.parametrize("service", helm.SERVICES)
async def test_a_service_has_the_rights_it_needs_and_no_other(
    service: str, running: control_plane.Services, audited: list[rbac_rights.AuditedRequest]
) -> None:
    mine = [each for each in audited if each.user == control_plane.account(service)]
    assert [str(each.right) for each in mine if not each.is_allowed] == []
    rights = rbac_rights.granted(rbac_rights.bound(running.objects, f"stromboli-{service}"))
    unused = {str(right) for right in rbac_rights.unused(rights, mine)}
    assert unused - RARE.get(service, set()) == set()


@in_one_loop
async def test_the_scheduler_sends_no_request_to_the_api_server(
    audited: list[rbac_rights.AuditedRequest],
) -> None:
    assert control_plane.account("scheduler") not in {each.user for each in audited}


@in_one_loop
async def test_definitions_that_are_there_are_never_written_over(
    installed: control_plane.ControlPlane,
) -> None:
    """They were installed with the first release, which is uninstalled; no later release has
    changed them.
    """
    async with installed.api_server.client() as api:
        for each in (await api.get(DEFINITIONS))["items"]:
            assert each["metadata"]["generation"] == 1
    said = installed.sh(f"{install_guide.block('definitions').strip()} --dry-run=server")
    assert said.count("serverside-applied") == 10


@in_one_loop
async def test_pods_of_the_system_pass_pod_security_restricted(
    installed: control_plane.ControlPlane,
) -> None:
    """The API server checks this itself, in a namespace that admits no other pods."""
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": "strict", "labels": label}
    async with installed.api_server.client() as api:
        await api.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": metadata})
        await api.until_namespace_takes_pods("strict")
        trial = helm.rendered("stromboli", *control_plane.TRIAL, release="stromboli")
        for each in helm.of_kind(trial, "ServiceAccount"):
            account = {"metadata": {"name": each["metadata"]["name"]}}
            await api.create("/api/v1/namespaces/strict/serviceaccounts", account)
        for kind in ("Deployment", "StatefulSet"):
            for each in helm.of_kind(trial, kind):
                spec = each["spec"]["template"]["spec"]
                claims = each["spec"].get("volumeClaimTemplates", [])
                spec["volumes"] += [
                    {"name": claim["metadata"]["name"], "emptyDir": {}} for claim in claims
                ]
                pod = {"metadata": {"name": each["metadata"]["name"]}, "spec": spec}
                await api.create("/api/v1/namespaces/strict/pods?dryRun=All", pod)


@in_one_loop
async def test_a_server_side_dry_run_accepts_every_object(
    installed: control_plane.ControlPlane,
) -> None:
    """Including objects that are off by default and need no CRDs of other projects."""
    groups = '[{"resourceGroup": "gpu", "object": {"key": "namespace", "value": ["ml"]}}]'
    policies = ["--set", "admission.judgedBy=policies"]
    for options in (
        ["--set-json", f"admission.resourceGroups={groups}"],
        policies,
        ["--set", "controller.ownerReferencesPermissionEnforcement=true"],
        ["--set", "admission.rest.enabled=true"],
    ):
        objects = helm.rendered("stromboli", *control_plane.TRIAL, *options, release="other")
        file = installed.state / "other.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        installed.sh(
            "kubectl get namespace batch >/dev/null 2>&1 || kubectl create namespace batch\n"
            f"kubectl apply --server-side --force-conflicts --dry-run=server -f {file}"
        )


@in_one_loop
async def test_an_upgrade_keeps_the_certificate_and_the_ca(
    running: control_plane.Services,
) -> None:
    """Helm compares with what it wrote itself: the certificate of the service is not
    part of that.
    """
    await running.lead(here=False)
    before = running.control.sh(WHAT_ADMISSION_WROTE)
    upgrade = install_guide.block("install").replace("helm install", "helm upgrade")
    running.control.sh(upgrade)
    assert running.control.sh(WHAT_ADMISSION_WROTE) == before
    assert before.count("\n") == 3
    assert all(len(line) > 100 for line in before.splitlines())


WHAT_ADMISSION_WROTE = """\
secret=stromboli-admission-certificate
kubectl --namespace stromboli get secret $secret --output 'jsonpath={.data}{"\\n"}'
for way in mutating validating; do
  kubectl get ${way}webhookconfigurations stromboli.stromboli-admission \\
    --output 'jsonpath={.webhooks[*].clientConfig.caBundle}{"\\n"}'
done
"""


OPENED = {
    "create subjectaccessreviews.authorization.k8s.io",
    "create tokenreviews.authentication.k8s.io",
    "list jobs.batch.volcano.sh",
}
"""What the requests below take. Each other route has tests of its own, and its right a line in the
table of admission's page, which the chart is compared with."""


@in_one_loop
async def test_rest_enabled_as_in_the_guide_serves_tenants_within_their_rights(
    running: control_plane.Services, audited: list[rbac_rights.AuditedRequest]
) -> None:
    """Under the chart's certificate, settings and rights; after all that runs without them."""
    control = running.control
    await running.lead(here=False)
    notes = control.sh(install_guide.block("rest"))
    whole = "helm install whole charts/stromboli --dry-run --take-ownership"
    options = " ".join(("-n stromboli", *control_plane.TRIAL, "--set admission.rest.enabled=true"))
    for said, name in ((notes, "stromboli"), (control.sh(f"{whole} {options}"), "whole")):
        assert f"REST: https://{name}-admission.stromboli:8480" in said
    await running.follow("admission")
    await running.lead(here=True)
    (control.state / "tenant.yaml").write_text(install_guide.block("tenant", "accounts.md"))
    control.sh(
        "kubectl create namespace vision\n"
        "for who in trainer stranger operator; do\n"
        "kubectl -n vision create serviceaccount $who; done\n"
        "kubectl create clusterrolebinding vision-operator --clusterrole cluster-admin"
        " --serviceaccount vision:operator\n"
        f"kubectl apply -f {control.state}/tenant.yaml"
    )
    trusted = control.sh(install_guide.block("authority") + "cat stromboli.crt")
    address = f"{ports.LOOPBACK}:{running.pods['admission'].port('rest')}"
    reach = install_guide.block("reach").replace("stromboli-admission.stromboli:8480", address)
    assert reach.count(address) == 1
    control.sh(reach)

    stranger = control.sh("kubectl create token stranger -n vision --audience stromboli").strip()
    context = ssl.create_default_context(cadata=trusted)
    url = f"https://{address}/v1/namespaces/vision/jobs"
    async with aiohttp.ClientSession() as session:
        for headers, status in (({"Authorization": f"Bearer {stranger}"}, 403), ({}, 401)):
            async with session.get(url, headers=headers, ssl=context) as answer:
                assert answer.status == status, await answer.text()
        operator = control.sh("kubectl create token operator -n vision --audience stromboli")
        headers = {"Authorization": f"Bearer {operator.strip()}"}
        health = f"https://{address}/v1/health"  # reads the Leases of monitor and controller
        async with session.get(health, headers=headers, ssl=context) as answer:
            assert answer.status == 200, await answer.text()

    user = control_plane.account("admission")
    mine = [
        each
        for each in rbac_rights.audited_requests(control.api_server.audit_log)
        if each.user == user
    ]
    assert [str(each.right) for each in mine if not each.is_allowed] == []
    rights = rbac_rights.granted(rbac_rights.bound(running.objects, "stromboli-admission"))
    unused = {str(right) for right in rbac_rights.unused(rights, mine)}
    untried = {str(right) for right in rbac_rights.documented()} - OPENED
    assert unused <= untried
