"""Devices of claims (resource.k8s.io) on real kubelets: from the scheduler's decision to /dev of a
container.

The devices do not exist. Their driver, one on each node, is the tests' (``DeviceDriver``); the
kubelets, containerd and Kubernetes' controller of claims are real.
"""

import contextlib
import functools
import re
import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from stromboli.monitor.agent import podresources
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import kafka
from stromboli.shared.messages import scheduling
from stromboli.testkit import records
from stromboli.testkit.doubles import device_driver
from stromboli.testkit.doubles.device_driver import DeviceDriver
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import KubeletSystem, job, requests, shell
from tests.e2e.support.rest_user import Document

pytestmark = [
    pytest.mark.kubelet,
    pytest.mark.usefixtures("kubelet_round"),
    pytest.mark.timeout(420),
]
NODES = ("kubelet-0", "kubelet-1")
DRIVER = "devices.example.com"
SMALL, LARGE = "small", "large"
MODELS = {f"device-{index}": SMALL if index < 6 else LARGE for index in range(8)}
"""The devices of each node."""
ALL = frozenset(f"{node}.{device}" for node in NODES for device in MODELS)
SHOW = f"echo sees {device_driver.DEVICES}/*"
STAY = f"{SHOW}; exec sleep 3600"
SEES = re.compile(r"\[pod/(?P<pod>[^/]+)/(?P<container>[^\]]+)\] sees (?P<paths>.*)")
CONTROLLER = "resourceclaim-controller"
CLASS = "device"
Devices = frozenset[str]


def claim_template(name: str, *wanted: Document) -> Document:
    """A template of claims with these requests."""
    return {
        "apiVersion": kinds.RESOURCE_CLAIM_TEMPLATES.api_version,
        "kind": kinds.RESOURCE_CLAIM_TEMPLATES.kind,
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": list(wanted)}}},
    }


def exactly(name: str, count: int = 1) -> Document:
    """A request for a number of devices of any model."""
    return {"name": name, "exactly": {"deviceClassName": CLASS, "count": count}}


def first_available(name: str, *models: str) -> Document:
    """A request for a device of the first of these models that a node has."""
    expression = 'device.attributes["{}"].model == "{}"'
    alternatives = [
        {
            "name": model,
            "deviceClassName": CLASS,
            "selectors": [{"cel": {"expression": expression.format(DRIVER, model)}}],
        }
        for model in models
    ]
    return {"name": name, "firstAvailable": alternatives}


OBJECTS = (
    {
        "apiVersion": kinds.DEVICE_CLASSES.api_version,
        "kind": kinds.DEVICE_CLASSES.kind,
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    },
    claim_template("one", exactly("it")),
    claim_template("four", exactly("them", 4)),
    claim_template("two-requests", first_available("first", "absent", LARGE), exactly("second", 2)),
    {
        "apiVersion": kinds.RESOURCE_CLAIMS.api_version,
        "kind": kinds.RESOURCE_CLAIMS.kind,
        "metadata": {"name": "shared"},
        "spec": {"devices": {"requests": [exactly("it")]}},
    },
)


class DeviceNodes:
    """Two nodes with drivers."""

    def __init__(self, system: KubeletSystem, drivers: Mapping[str, DeviceDriver]) -> None:
        self.system, self.drivers, self.user = system, drivers, system.user

    def claims(self) -> dict[str, Document]:
        """Name -> status of each claim."""
        items = self.system.get("resourceclaims").get("items", [])
        return {it["metadata"]["name"]: it.get("status", {}) for it in items}

    def users(self, claim: str) -> list[str]:
        """The pods for which a claim is reserved."""
        return [it["name"] for it in self.claims()[claim].get("reservedFor", ())]

    def allocated(self, job_name: str) -> dict[str, Devices]:
        """Pod -> the devices of the claims that are reserved for it, of a job."""
        found: dict[str, Devices] = {}
        for status in self.claims().values():
            for user in status.get("reservedFor", ()):
                if user["name"].startswith(f"{job_name}-"):
                    found[user["name"]] = found.get(user["name"], frozenset()) | of_claim(status)
        return found

    def sees(self, job_name: str) -> dict[str, Devices]:
        """Container -> the devices in its /dev, of a job's containers that have said so."""
        words = ("--all-containers", "--prefix", "--max-log-requests=32")
        lines = self.system.kubectl("logs", f"--selector={keys.JOB_NAME}={job_name}", *words)
        found = filter(None, map(SEES.match, lines.splitlines()))
        return {f"{it['pod']}/{it['container']}": of_paths(it["paths"]) for it in found}

    def see(self, job_name: str, containers: int = 1) -> dict[str, Devices]:
        """The same when this number of containers runs."""
        self.user.until(
            lambda: [
                status
                for pod in self.user.pods(job_name)
                for status in pod["status"].get("containerStatuses", ())
                if "waiting" not in status["state"]
            ],
            lambda started: len(started) == containers,
        )
        found: dict[str, Devices] = self.user.until(
            lambda: self.sees(job_name), lambda found: len(found) == containers
        )
        return found

    def decided(self) -> dict[str, Devices]:
        """Pod -> the devices that the scheduler has decided for it."""
        return self.system.run(self._decided())

    async def _decided(self) -> dict[str, Devices]:
        found: dict[str, Devices] = {}
        async with kafka.KafkaBus(kafka.KafkaSettings(bootstrap=(self.system.kafka,))) as bus:
            for record in (await records.read(bus, topics.DECISIONS))[0]:
                message = envelope.decode(record)
                if isinstance(message, scheduling.StatementDecided):
                    found |= {
                        bind.pod: frozenset(
                            f"{it.pool}.{it.device}"
                            for claim in bind.devices
                            if claim.allocation is not None
                            for it in claim.allocation.devices.results
                        )
                        for bind in message.binds
                    }
        return found

    def reported(self, job_name: str) -> dict[str, Devices]:
        """Pod -> its devices as the node agent reads them from the kubelet's API."""
        found: dict[str, Devices] = {}
        for node in NODES:
            with tempfile.TemporaryDirectory(prefix="kubelet-") as short:  # paths of sockets
                Path(short, "k").symlink_to(self.system.node(node).folder)
                kubelet = podresources.Kubelet(f"{short}/k/pod-resources/kubelet.sock")
                try:
                    exclusive_allocations = kubelet.exclusive_allocations() or ()
                finally:
                    kubelet.close()
            found |= {
                each.pod: frozenset(name.replace("/", ".") for name in devices.ids)
                for each in exclusive_allocations
                for devices in each.devices
                if devices.resource == DRIVER and each.pod.startswith(f"{job_name}-")
            }
        return found

    def prepared(self) -> Devices:
        """The devices that drivers have prepared, of both nodes."""
        return frozenset(
            f"{node}.{device}"
            for node, driver in self.drivers.items()
            for device in chain(*driver.prepared().values())
        )


def of_claim(status: Document) -> Devices:
    """The devices of a claim, from its status."""
    results = status.get("allocation", {}).get("devices", {}).get("results", ())
    return frozenset(f"{it['pool']}.{it['device']}" for it in results)


def of_paths(text: str) -> Devices:
    """The devices in a list of paths; a pattern that matches nothing stays a pattern."""
    return frozenset(Path(path).name for path in text.split() if not path.endswith("*"))


def request(name: str) -> Document:
    """Resources of a container that uses one request of its pod's claim."""
    return {"claims": [{"name": "claim", "request": name}]}


def claiming(
    name: str, template: str, *, pods: int = 1, script: str = STAY, **rest: Any
) -> Document:
    """A job of which each pod claims devices by a template."""
    return with_claim(name, {"resourceClaimTemplateName": template}, pods, script, **rest)


def with_claim(name: str, source: Document, pods: int, script: str, **rest: Any) -> Document:
    """A job of which each pod has a claim. Without a grace period the API server deletes a pod
    before its node has released the devices, and a driver refuses them to the next claim."""
    amounts = requests(cpu="40m")["resources"]
    return job(
        name,
        shell(script),
        pods=pods,
        container={"resources": {**amounts, "claims": [{"name": "claim"}]}},
        pod={"terminationGracePeriodSeconds": 1, "resourceClaims": [{"name": "claim", **source}]},
        **rest,
    )


@pytest.fixture(scope="module")
def nodes(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeviceNodes]:
    state = tmp_path_factory.mktemp("kubelets")
    devices = {name: {"model": {"string": model}} for name, model in MODELS.items()}
    with contextlib.ExitStack() as stack:
        system = stack.enter_context(
            kubelet_system.running(state, real_tools, {}, controllers=(CONTROLLER,))
        )
        drivers = {
            node: stack.enter_context(
                DeviceDriver(system.node(node), system.server, DRIVER, devices)
            )
            for node in NODES
        }
        system.create(*OBJECTS)
        yield DeviceNodes(system, drivers)


@pytest.fixture(autouse=True)
def no_claims_are_left(nodes: DeviceNodes) -> Iterator[None]:
    """Afterwards no device is allocated or prepared, and none was ever prepared for two claims."""
    yield
    for name in nodes.user.names():
        nodes.user.delete(name)
    nodes.user.until(nodes.prepared, lambda found: not found)
    nodes.user.until(
        lambda: [name for name, status in nodes.claims().items() if status.get("allocation")],
        lambda found: not found,
    )
    assert [driver.conflicts for driver in nodes.drivers.values()] == [[], []]


def test_each_container_sees_the_device_that_was_decided_for_its_claim(nodes: DeviceNodes) -> None:
    """Four gangs at the same time, which need all devices of both nodes."""
    names = ("a", "b", "c", "d")
    for name in names:
        nodes.user.submit(claiming(name, "one", pods=4))
    seen = {name: nodes.see(name, 4) for name in names}
    decided = nodes.decided()
    for name in names:
        in_pods = {container.partition("/")[0]: it for container, it in seen[name].items()}
        assert in_pods == nodes.allocated(name)
        assert in_pods == {pod: decided[pod] for pod in in_pods}
        assert in_pods == nodes.reported(name)
        for pod in nodes.user.pods(name):
            (device,) = in_pods[pod["metadata"]["name"]]
            assert device.startswith(f"{pod['spec']['nodeName']}.")
    each = list(chain(*(chain(*found.values()) for found in seen.values())))
    assert sorted(each) == sorted(ALL)


def test_a_container_sees_the_devices_of_the_request_that_it_names(nodes: DeviceNodes) -> None:
    """One container of the pod names the request with alternatives, one the other request, and one
    none of them: it sees nothing."""
    wanted = claiming("parts", "two-requests")
    (task,) = wanted["spec"]["tasks"]
    (main,) = task["template"]["spec"]["containers"]
    task["template"]["spec"]["containers"] = [
        {**main, "resources": {**main["resources"], **request("first")}},
        {**main, "name": "beside", "resources": request("second")},
        {**main, "name": "without", "resources": {}},
    ]
    nodes.user.submit(wanted)
    seen = nodes.see("parts", 3)
    models = {
        container.partition("/")[2]: sorted(MODELS[it.partition(".")[2]] for it in found)
        for container, found in seen.items()
    }
    assert models["main"] == [LARGE]
    assert len(models["beside"]) == 2
    assert models["without"] == []
    assert nodes.allocated("parts") == {"parts-work-0": frozenset(chain(*seen.values()))}


def test_pods_that_share_a_claim_see_its_device_until_the_last_one_ends(nodes: DeviceNodes) -> None:
    """Two jobs use a claim of the user, which outlives both."""
    source = {"resourceClaimName": "shared"}
    nodes.user.submit(with_claim("first", source, 2, STAY))
    before = nodes.see("first", 2)
    nodes.user.submit(with_claim("second", source, 1, STAY))
    after = nodes.see("second")
    held = of_claim(nodes.claims()["shared"])
    assert len(held) == 1
    assert {*before.values(), *after.values()} == {held}
    pods = [*nodes.user.pods("first"), *nodes.user.pods("second")]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    nodes.user.delete("first")
    nodes.user.until(lambda: nodes.users("shared"), lambda names: names == ["second-work-0"])
    assert of_claim(nodes.claims()["shared"]) == held == nodes.prepared()
    nodes.user.delete("second")
    nodes.user.until(lambda: nodes.claims()["shared"], lambda status: "allocation" not in status)


@pytest.mark.parametrize("ends", ["completes", "is deleted"])
def test_a_gang_gets_no_device_until_a_job_that_has_all_ends(nodes: DeviceNodes, ends: str) -> None:
    """Kubernetes deallocates the claims of ended pods, which exist as long as their job."""
    script = f"{SHOW}; while ! test -e /tmp/end; do sleep 0.2; done"
    nodes.user.submit(claiming("holds", "four", pods=4, script=script))
    held = nodes.see("holds", 4)
    assert frozenset(chain(*held.values())) == ALL
    nodes.user.submit(claiming("waits", "four", pods=2))
    shown = lambda: nodes.system.strom("explain", "waits")  # noqa: E731 - read until it is shown
    nodes.user.until(shown, lambda text: "claims" in text)
    assert not any(pod["spec"].get("nodeName") for pod in nodes.user.pods("waits"))
    assert nodes.allocated("waits") == {}
    if ends == "completes":
        for pod in nodes.user.pods("holds"):
            name = pod["metadata"]["name"]
            nodes.system.kubectl("exec", name, "--", "sh", "-c", "echo >/tmp/end")
        nodes.user.comes_to("holds", "Completed")
    else:
        nodes.user.delete("holds")
    seen = nodes.see("waits", 2)
    assert [len(devices) for devices in seen.values()] == [4, 4]
    assert len(frozenset(chain(*seen.values()))) == 8


def test_devices_stay_with_their_containers_when_the_kubelet_restarts(nodes: DeviceNodes) -> None:
    """A kubelet that starts deletes the ResourceSlices of its node, and the driver publishes them
    again. Claims keep their devices meanwhile, and later pods get others."""
    node = NODES[0]
    nodes.user.submit(claiming("stays", "four", pods=2))
    before = nodes.see("stays", 2)
    (published,) = slices(nodes, node)
    started = {pod["metadata"]["name"]: pod for pod in nodes.system.running("stays")}
    nodes.system.kill_kubelet(node)
    nodes.user.submit(claiming("meanwhile", "four"))
    nodes.system.restart_kubelet(node)
    nodes.user.until(
        functools.partial(slices, nodes, node),
        lambda found: bool(found) and found != [published],
    )
    nodes.user.submit(claiming("later", "four"))
    seen = {**nodes.see("meanwhile"), **nodes.see("later")}
    assert nodes.sees("stays") == before
    each = list(chain(*before.values(), *seen.values()))
    assert sorted(each) == sorted(ALL)
    for pod in nodes.system.running("stays"):
        was = nodes.system.container(started[pod["metadata"]["name"]])
        assert nodes.system.container(pod)["containerID"] == was["containerID"]


def slices(nodes: DeviceNodes, node: str) -> list[str]:
    """The uids of a node's ResourceSlices."""
    words = ("resourceslices", f"--field-selector=spec.nodeName={node}")
    return [it["metadata"]["uid"] for it in nodes.system.get(*words).get("items", [])]
