"""etcd, kube-apiserver and kube-controller-manager: a control plane without kubelets.

The API server accepts bearer tokens of the given users under RBAC, creates its own serving
certificate, and calls webhooks at any address, loopback included. Its admission plugins are the
default ones, so pods are served as on any cluster: each has a token volume with a random name and
two default tolerations, a new namespace accepts pods only once it has its default service account,
and a new node is tainted until a controller has observed it as ready. The controllers that these
plugins require always run.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import aiohttp

from stromboli.testkit.parts import ports
from stromboli.testkit.parts.api import Api, ApiError
from stromboli.testkit.parts.part import Part
from stromboli.testkit.parts.tools import Tools

MASTERS = "system:masters"  # RBAC's group with all rights
CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "job-controller",
    "resourcequota-controller",
    "disruption-controller",
    "persistentvolume-binder-controller",
    # Controllers that the default admission plugins ServiceAccount and TaintNodesByCondition
    # require.
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
    "node-lifecycle-controller",
)
OWNER_AND_TAINT_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "taint-eviction-controller",
)
"""Controllers that create pods of applied objects and evict pods of lost nodes: not needed by all
tests.
"""
SERVICE_ADDRESSES = "10.0.0.0/24"
API_SERVICE_ADDRESS = "10.0.0.1"
API_SERVICE_PORT = 443
"""ClusterIP of the Service ``kubernetes``: the first address of the range, which the API server's
certificate contains."""
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
CLIENT_ERRORS = (aiohttp.ClientError, TimeoutError, ApiError, OSError)


@dataclass(frozen=True)
class User:
    """A user of the API server; groups decide what RBAC allows, besides bindings by name."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


ADMIN = "admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
KWOK = "system:kwok"


class Etcd(Part):
    """One etcd member at `url`, without authentication.

    Without `fsync` an acknowledged write may be lost when the machine stops, though not when
    etcd is killed; measure latencies with it.
    """

    name: ClassVar[str] = "etcd"
    port_count: ClassVar[int] = 2

    def __init__(
        self, tools: Tools, state: Path, *, fsync: bool = False, detached: bool = False
    ) -> None:
        """`state`: the folder for log and data. Does not start the member."""
        super().__init__(state, detached=detached)
        self._tools = tools
        self._fsync = fsync

    @property
    def url(self) -> str:
        """The URL for clients, once it has started."""
        return f"http://{ports.LOOPBACK}:{self.ports[0]}"

    def command(self) -> list[str]:
        """etcd's command line."""
        peer = f"http://{ports.LOOPBACK}:{self.ports[1]}"
        command = [
            self._tools.program("etcd"),
            f"--data-dir={self.state / 'data'}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
            "--quota-backend-bytes=4294967296",  # long tests exceed the default of 2 GB
        ]
        return command if self._fsync else [*command, "--unsafe-no-fsync"]

    async def is_ready(self) -> bool:
        """True once it has a leader and serves linearizable reads."""
        return await answers_ok(f"{self.url}/health")


class ApiServer(Part):
    """kube-apiserver at `url`, with a kubeconfig file for each of its users."""

    name: ClassVar[str] = "kube-apiserver"

    def __init__(
        self,
        tools: Tools,
        state: Path,
        etcd: Etcd,
        *,
        users: Sequence[User] = (),
        audited: bool = False,
        kubelet_client: tuple[Path, Path] | None = None,
        options: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        """A server that stores objects in `etcd`. An administrator and the users of other parts are
        added to `users`.

        `audited`: the `audit_log` records each request with its user and result. `kubelet_client`:
        PEM files of the client certificate and key for kubelets. `options`: further arguments of
        its command line.
        """
        super().__init__(state, detached=detached)
        self._audited = audited
        self._kubelet_client = kubelet_client
        self._options = options
        self._tools = tools
        self._etcd = etcd
        own = (User(name, (MASTERS,)) for name in (ADMIN, CONTROLLER_MANAGER, KWOK))
        self.users = {user.name: user for user in (*own, *users)}

    @property
    def url(self) -> str:
        """Its address, once it has started."""
        return f"https://{ports.LOOPBACK}:{self.ports[0]}"

    @property
    def ca_file(self) -> Path:
        """The PEM file of the CA of its certificate; unchanged by restarts."""
        return self._certificates / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """PEM file of the key that signs service account tokens.

        The server creates its serving key before it reads this one, so one key serves both.
        """
        return self._certificates / "apiserver.key"

    @property
    def audit_log(self) -> Path:
        """The audit log, if `audited`: one JSON event of audit.k8s.io/v1 per line."""
        return self.state / "audit.jsonl"

    @property
    def _certificates(self) -> Path:
        return self.state / "certificates"

    def token(self, user: str = ADMIN) -> str:
        """A user's bearer token."""
        return self.users[user].token

    def client(self, user: str = ADMIN) -> Api:
        """A client with the rights of a user; use it as a context manager."""
        return Api(self.url, self.token(user), self.ca_file)

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A kubeconfig file for a user, as JSON, which is valid YAML."""
        path = self.state / f"{user.replace(':', '-')}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [_named("cluster", server=self.url, file=self.ca_file)],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "current-context": "real",
        }
        _write_private(path, json.dumps(config, indent=1))
        return path

    async def prepare(self) -> None:
        """Write the users with their tokens."""
        lines = (
            f'{user.token},{user.name},{user.name},"{",".join(user.groups)}"\n'
            for user in self.users.values()
        )
        _write_private(self.state / "tokens.csv", "".join(lines))
        if self._audited:
            self._audit_policy.write_text(json.dumps(AUDIT_POLICY))

    @property
    def _audit_policy(self) -> Path:
        return self.state / "audit-policy.json"

    def command(self) -> list[str]:
        """The API server's command line."""
        key = self.service_account_key
        return [
            self._tools.program("kube-apiserver"),
            f"--etcd-servers={self._etcd.url}",
            f"--bind-address={ports.LOOPBACK}",
            f"--advertise-address={ports.LOOPBACK}",
            f"--secure-port={self.ports[0]}",
            f"--cert-dir={self._certificates}",
            f"--token-auth-file={self.state / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
            "--endpoint-reconciler-type=none",  # endpoints must not be loopback addresses
            "--allow-privileged=true",
            "--profiling=false",
            # Otherwise stopping waits up to a minute for open watches instead of closing them.
            "--shutdown-watch-termination-grace-period=1s",
            *self._audit(),
            *self._calls_kubelets(),
            *self._options,
        ]

    def _calls_kubelets(self) -> list[str]:
        if self._kubelet_client is None:
            return []
        certificate, key = self._kubelet_client
        return [
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _audit(self) -> list[str]:
        if not self._audited:
            return []
        return [f"--audit-policy-file={self._audit_policy}", f"--audit-log-path={self.audit_log}"]

    async def is_ready(self) -> bool:
        """Whether all its post-start hooks have run: RBAC's roles and default namespaces exist."""
        if not self.ca_file.exists():
            return False
        with contextlib.suppress(*CLIENT_ERRORS):
            async with self.client() as api:
                await api.get("/readyz")
                return await api.exists("/api/v1/namespaces/default")
        return False


class ControllerManager(Part):
    """kube-controller-manager with the controllers that tests require."""

    name: ClassVar[str] = "kube-controller-manager"
    port_count: ClassVar[int] = 0

    def __init__(
        self,
        tools: Tools,
        state: Path,
        server: ApiServer,
        *,
        further: Sequence[str] = (),
        node_grace_s: int | None = None,
        detached: bool = False,
    ) -> None:
        """A controller manager of `server`, with `further` controllers.

        `node_grace_s`: seconds without a heartbeat after which a node is not ready; None: never,
        for simulated nodes, which send none.
        """
        super().__init__(state, detached=detached)
        self._node_grace_s = node_grace_s or 24 * 3600
        self._tools = tools
        self._server = server
        self._controllers = (*CONTROLLERS, *further)

    def command(self) -> list[str]:
        """The controller manager's command line."""
        return [
            self._tools.program("kube-controller-manager"),
            f"--kubeconfig={self._server.kubeconfig(CONTROLLER_MANAGER)}",
            f"--controllers={','.join(self._controllers)}",
            f"--service-account-private-key-file={self._server.service_account_key}",
            f"--root-ca-file={self._server.ca_file}",
            "--leader-elect=false",
            f"--node-monitor-grace-period={self._node_grace_s}s",
            "--node-monitor-period=1s",
            "--authentication-skip-lookup=true",
            "--secure-port=0",
            "--kube-api-qps=1000",  # the default of 20 takes a minute to collect a big job's pods
            "--kube-api-burst=2000",
        ]

    async def is_ready(self) -> bool:
        """Whether the default namespace accepts pods and the garbage collector has discovered its
        kinds.

        These are the kinds that existed at its start; a later one is discovered within 30 s, so
        create CRDs before. It has no endpoint for this, so its log is read.
        """
        if "Proceeding to collect garbage" not in self.process.logged():
            return False
        async with self._server.client() as api:
            return await api.exists("/api/v1/namespaces/default/serviceaccounts/default")


class Scheduler(Part):
    """kube-scheduler, for pods that do not name another scheduler."""

    name: ClassVar[str] = "kube-scheduler"
    port_count: ClassVar[int] = 0

    def __init__(self, program: str, state: Path, server: ApiServer) -> None:
        """A scheduler of `server`. Does not start it."""
        super().__init__(state)
        self._program = program
        self._server = server

    def command(self) -> list[str]:
        """The scheduler's command line."""
        return [
            self._program,
            f"--kubeconfig={self._server.kubeconfig(CONTROLLER_MANAGER)}",
            "--authentication-skip-lookup=true",
            "--secure-port=0",
        ]

    async def is_ready(self) -> bool:
        """Whether it is the leader, from its lease: it has no endpoint for this."""
        async with self._server.client() as api:
            path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
            return await api.exists(path)


async def answers_ok(url: str) -> bool:
    """Whether a GET of `url` returns status 200 now."""
    timeout = aiohttp.ClientTimeout(total=2)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            return answer.status == 200
    except CLIENT_ERRORS:
        return False


def _named(kind: str, *, server: str, file: Path) -> dict[str, object]:
    return {"name": "real", kind: {"server": server, "certificate-authority": str(file)}}


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    os.chmod(path, 0o600)
    path.write_text(text)
