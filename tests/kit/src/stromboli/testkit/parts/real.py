"""All real parts together: a broker, and a control plane with fake nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from stromboli.testkit.parts import kubernetes, kwok, tools
from stromboli.testkit.parts.api import Api
from stromboli.testkit.parts.kafka import Kafka
from stromboli.testkit.parts.part import Part


class RealParts:
    """Starts everything on entry and stops it on exit; each part can also be used by itself.

    `kafka`, `etcd`, `api_server`, `controller_manager` and `kwok` are the parts; the properties
    are what clients need.
    """

    def __init__(
        self,
        state: Path,
        *,
        nodes: int = 0,
        definitions: Sequence[Mapping[str, Any]] = (),
        users: Sequence[kubernetes.User] = (),
        fsync: bool = False,
        stages: Path = kwok.STAGES,
        controllers: Sequence[str] = (),
        kubelet_client: tuple[Path, Path] | None = None,
        node_grace_s: int | None = None,
        api_server_options: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        """`state`: an empty directory for all state. Starts nothing.

        `definitions`: CustomResourceDefinitions to create before the garbage collector starts,
        which takes up to 30 s to discover later ones. `controllers` run beside the usual ones of
        kube-controller-manager. `kubelet_client`: see `ApiServer`; `node_grace_s`: see
        `ControllerManager`; `api_server_options`: see `ApiServer`. `detached` parts outlive this
        process. Raises RealPartsMissingError if `make real-tools` has not been run.
        """
        found = tools.locate()
        self.kafka = Kafka(found, state / "kafka", detached=detached)
        self.etcd = kubernetes.Etcd(found, state / "etcd", fsync=fsync, detached=detached)
        self.api_server = kubernetes.ApiServer(
            found,
            state / "kube-apiserver",
            self.etcd,
            users=users,
            kubelet_client=kubelet_client,
            options=api_server_options,
            detached=detached,
        )
        self.controller_manager = kubernetes.ControllerManager(
            found,
            state / "kube-controller-manager",
            self.api_server,
            further=controllers,
            node_grace_s=node_grace_s,
            detached=detached,
        )
        self.kwok = kwok.Kwok(
            found, state / "kwok", self.api_server, stages=stages, detached=detached
        )
        self._nodes = nodes
        self._definitions = definitions

    @property
    def kafka_bootstrap(self) -> str:
        """bootstrap.servers of the broker."""
        return self.kafka.bootstrap

    @property
    def api_url(self) -> str:
        """Address of the API server."""
        return self.api_server.url

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return self.api_server.token()

    @property
    def ca_file(self) -> Path:
        """PEM file of the API server's CA."""
        return self.api_server.ca_file

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.api_server.kubeconfig()

    def client(self, user: str = kubernetes.ADMIN) -> Api:
        """A small client of the API server; use it as a context manager."""
        return self.api_server.client(user)

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts in the order in which they may be stopped one by one."""
        return (self.kwok, self.controller_manager, self.api_server, self.etcd, self.kafka)

    async def start(self) -> None:
        """Start all parts, the broker concurrently with the control plane; takes about 5 s on two
        cores.

        If a part fails, stops the others and raises its error (in an exception group).
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.kafka.start())
                tasks.create_task(self._start_control_plane())
        except BaseException:
            await self.stop()
            raise

    async def _start_control_plane(self) -> None:
        await self.etcd.start()
        await self.api_server.start()
        async with self.client() as api, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._start_controllers(api))
            tasks.create_task(kwok.create_nodes(api, self._nodes))
            tasks.create_task(self.kwok.start())

    async def _start_controllers(self, api: Api) -> None:
        async with asyncio.TaskGroup() as tasks:
            for definition in self._definitions:
                tasks.create_task(api.establish(definition))
        await self.controller_manager.start()

    async def stop(self) -> None:
        """Stop all running parts, clients before their servers."""
        for layer in (self.parts[:2], self.parts[2:3], self.parts[3:]):
            await asyncio.gather(*(part.stop() for part in layer))

    async def __aenter__(self) -> RealParts:
        """Start everything."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything."""
        await self.stop()
