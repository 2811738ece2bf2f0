"""A driver of devices that do not exist: it publishes the devices of a node in a ResourceSlice, and
prepares those of claims for a real kubelet, so that containers see them below /dev.

The kubelet finds the driver's socket in its folder of plugins and calls it before the containers of
a pod start and after they have ended. The protocols are Kubernetes' ``pluginregistration/v1`` and
``dra/v1`` of ``k8s.io/kubelet/pkg/apis``. A container sees a device by its CDI name, which the
kubelet passes to containerd. A kubelet that starts deletes the ResourceSlices of its node, so that
a driver must publish its own again.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import httpx

from stromboli.monitor.agent.podresources import message_classes
from stromboli.shared.api import kinds
from stromboli.testkit.doubles.device_plugin import unary
from stromboli.testkit.parts.api import tls_context
from stromboli.testkit.parts.kubelets import KUBELET_FOLDER, KubeletNode
from stromboli.testkit.parts.kubernetes import ApiServer

DEVICES = "/dev/claimed"
"""The folder of a container with its devices, each named ``<pool>.<device>``."""
CDI_KIND = "example.com/device"
REGISTRATION, PLUGIN = "pluginregistration", "k8s.io.kubelet.pkg.apis.dra.v1"
"""Packages of the two protocols."""
SUPPORTED = "v1.DRAPlugin"
REGISTERED_WITHIN_S = 60.0
LOOK_EVERY_S = 0.5
TIMEOUT_S = 30.0
CALLS = 8
SLICES = kinds.RESOURCE_SLICES.path()

Fields = Mapping[str, Mapping[str, tuple[int, Any]]]
REGISTRATION_FIELDS: Fields = {
    "InfoRequest": {},
    "PluginInfo": {
        "type": (1, "string"),
        "name": (2, "string"),
        "endpoint": (3, "string"),
        "supported_versions": (4, ["string"]),
    },
    "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
    "RegistrationStatusResponse": {},
}
# A map is encoded as a list of entries with a key and a value.
PLUGIN_FIELDS: Fields = {
    "Claim": {"namespace": (1, "string"), "uid": (2, "string"), "name": (3, "string")},
    "Device": {
        "request_names": (1, ["string"]),
        "pool_name": (2, "string"),
        "device_name": (3, "string"),
        "cdi_device_ids": (4, ["string"]),
    },
    "Prepared": {"devices": (1, ["Device"]), "error": (2, "string")},
    "PreparedEntry": {"key": (1, "string"), "value": (2, "Prepared")},
    "Unprepared": {"error": (1, "string")},
    "UnpreparedEntry": {"key": (1, "string"), "value": (2, "Unprepared")},
    "PrepareRequest": {"claims": (1, ["Claim"])},
    "PrepareResponse": {"claims": (1, ["PreparedEntry"])},
    "UnprepareRequest": {"claims": (1, ["Claim"])},
    "UnprepareResponse": {"claims": (1, ["UnpreparedEntry"])},
}
MESSAGES = {
    **message_classes(REGISTRATION, REGISTRATION_FIELDS),
    **message_classes(PLUGIN, PLUGIN_FIELDS),
}


class DeviceDriver:
    """The devices of a node while inside the context; the kubelet must be running.

    ``name``: of the driver; ``devices``: device -> its attributes, as a ResourceSlice has them.
    """

    def __init__(
        self,
        node: KubeletNode,
        server: ApiServer,
        name: str,
        devices: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.conflicts: list[str] = []
        """Claims that were to be prepared while another claim had one of their devices."""
        self._node, self._server, self._name, self._devices = node, server, name, devices
        self._prepared: dict[str, frozenset[str]] = {}
        self._calls = threading.Lock()
        self._registered = threading.Event()
        self._stopping = threading.Event()
        self._exit = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._keep_published, daemon=True)

    def prepared(self) -> dict[str, frozenset[str]]:
        """Uid of a claim -> its devices, of the claims that the kubelet has prepared."""
        with self._calls:
            return dict(self._prepared)

    def __enter__(self) -> DeviceDriver:
        """Register with the kubelet and publish the devices."""
        with contextlib.ExitStack() as stack:
            self._node.cdi_file.write_text(json.dumps(self._cdi_specification()))
            stack.callback(self._node.cdi_file.unlink, missing_ok=True)
            self._http = stack.enter_context(self._client())
            stack.enter_context(self._serving())
            if not self._registered.wait(REGISTERED_WITHIN_S):
                raise TimeoutError(f"the kubelet of {self._node.node} did not register the driver")
            self._thread.start()
            stack.callback(self._withdraw)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Withdraw the devices and stop the server."""
        self._exit.close()

    def _client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self._server.url,
            headers={"Authorization": f"Bearer {self._server.token()}"},
            verify=tls_context(self._server.ca_file),
            timeout=TIMEOUT_S,
            trust_env=False,
        )

    # Devices of the node --------------------------------------------------------------------

    def _keep_published(self) -> None:
        """Create the slice whenever it does not exist: the response is a conflict if it does."""
        while not self._stopping.is_set():
            with contextlib.suppress(httpx.HTTPError):
                self._http.post(SLICES, json=self._slice())
            self._stopping.wait(LOOK_EVERY_S)

    def _withdraw(self) -> None:
        self._stopping.set()
        self._thread.join()
        with contextlib.suppress(httpx.HTTPError):  # the API server may have stopped
            self._http.delete(f"{SLICES}/{self._slice()['metadata']['name']}")

    def _slice(self) -> dict[str, Any]:
        node = self._node.node
        devices = [{"name": name, "attributes": it} for name, it in self._devices.items()]
        return {
            "apiVersion": kinds.RESOURCE_SLICES.api_version,
            "kind": kinds.RESOURCE_SLICES.kind,
            "metadata": {"name": f"{node}-{self._name}"},
            "spec": {
                "driver": self._name,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }

    def _cdi_specification(self) -> dict[str, Any]:
        """Each device is another name of /dev/null."""
        names = [self._cdi_name(device) for device in self._devices]
        return {
            "cdiVersion": "0.5.0",
            "kind": CDI_KIND,
            "devices": [{"name": name, "containerEdits": _edits(name)} for name in names],
        }

    def _cdi_name(self, device: str) -> str:
        return f"{self._node.node}.{device}"

    # The kubelet's calls --------------------------------------------------------------------

    @contextlib.contextmanager
    def _serving(self) -> Iterator[None]:
        """Both protocols, on a socket each."""
        folder = self._node.folder
        sockets = (self._registration, self._endpoint)
        # The path of a socket has at most 107 bytes, so gRPC gets a short path through a link.
        with tempfile.TemporaryDirectory(prefix="driver-") as short:
            Path(short, "k").symlink_to(folder)
            server = grpc.server(futures.ThreadPoolExecutor(CALLS))
            server.add_generic_rpc_handlers(tuple(self._handlers()))
            for path in reversed(sockets):  # the kubelet calls when it sees the first one
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).unlink(missing_ok=True)
                server.add_insecure_port(f"unix://{short}/k/{path}")
            server.start()
            try:
                yield
            finally:
                server.stop(None).wait()
                for path in sockets:
                    (folder / path).unlink(missing_ok=True)

    @property
    def _registration(self) -> str:
        return f"plugins_registry/{self._name}.sock"

    @property
    def _endpoint(self) -> str:
        return f"plugins/{self._name}/dra.sock"

    def _handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        yield grpc.method_handlers_generic_handler(
            f"{REGISTRATION}.Registration",
            {
                "GetInfo": unary(MESSAGES["InfoRequest"], self._information),
                "NotifyRegistrationStatus": unary(MESSAGES["RegistrationStatus"], self._notified),
            },
        )
        yield grpc.method_handlers_generic_handler(
            f"{PLUGIN}.DRAPlugin",
            {
                "NodePrepareResources": unary(MESSAGES["PrepareRequest"], self._prepare_all),
                "NodeUnprepareResources": unary(MESSAGES["UnprepareRequest"], self._unprepare),
            },
        )

    def _information(self, request: Any, context: grpc.ServicerContext) -> Any:
        return MESSAGES["PluginInfo"](
            type="DRAPlugin",
            name=self._name,
            endpoint=f"{KUBELET_FOLDER}/{self._endpoint}",
            supported_versions=[SUPPORTED],
        )

    def _notified(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.plugin_registered:
            self._registered.set()
        return MESSAGES["RegistrationStatusResponse"]()

    def _prepare_all(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._calls:
            entries = [
                MESSAGES["PreparedEntry"](key=claim.uid, value=self._prepare(claim))
                for claim in request.claims
            ]
        return MESSAGES["PrepareResponse"](claims=entries)

    def _prepare(self, claim: Any) -> Any:
        """The devices of a claim, which the claim's status says: the request does not."""
        path = f"{kinds.RESOURCE_CLAIMS.path(claim.namespace)}/{claim.name}"
        found = self._http.get(path).raise_for_status().json()
        if found["metadata"]["uid"] != claim.uid:
            return MESSAGES["Prepared"](error="the claim was deleted and created again")
        results = [
            it
            for it in found["status"]["allocation"]["devices"]["results"]
            if it["driver"] == self._name
        ]
        own = frozenset(it["device"] for it in results)
        for other, devices in self._prepared.items():
            if other != claim.uid and devices & own:
                self.conflicts.append(f"{claim.name} has a device that claim {other} has")
                return MESSAGES["Prepared"](error=self.conflicts[-1])
        self._prepared[claim.uid] = own
        return MESSAGES["Prepared"](devices=[self._device(it) for it in results])

    def _device(self, result: Mapping[str, Any]) -> Any:
        """A device of a claim. The kubelet knows the names of requests, not of alternatives."""
        return MESSAGES["Device"](
            request_names=[result["request"].partition("/")[0]],
            pool_name=result["pool"],
            device_name=result["device"],
            cdi_device_ids=[f"{CDI_KIND}={self._cdi_name(result['device'])}"],
        )

    def _unprepare(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._calls:
            for claim in request.claims:
                self._prepared.pop(claim.uid, None)
        entries = [MESSAGES["UnpreparedEntry"](key=claim.uid) for claim in request.claims]
        return MESSAGES["UnprepareResponse"](claims=entries)


def _edits(name: str) -> dict[str, Any]:
    node = {"path": f"{DEVICES}/{name}", "hostPath": "/dev/null", "permissions": "rw"}
    return {"deviceNodes": [node]}
