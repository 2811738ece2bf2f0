"""A door with accounts over an embedded cluster: the tenants of the accounts' contract, a client
for each, and an API server that may be away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import yaml
from litestar import Litestar

from stromboli.admission.auth import principal
from stromboli.admission.rest import rest
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.local import accounts as files
from stromboli.local.cluster import OWN_NAME, EmbeddedCluster, Hook
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import accounts
from stromboli.shared.runtime import runtime
from stromboli.testkit.contracts.accounts import AUDIENCE, OTHER_AUDIENCE, Scene

USERS = ("ann", "ben", "eve", "op")


class Wavering:
    """Accounts that can be away, count how often they are asked, and tell when that was in vain."""

    def __init__(self, known: accounts.Accounts) -> None:
        self._known = known
        self.is_away = False
        self.asked = 0
        self.was_away = asyncio.Event()

    async def who(self, token: str, audiences: Sequence[str]) -> accounts.User | accounts.Unknown:
        """As the accounts have it."""
        self._ask()
        return await self._known.who(token, audiences)

    async def may(self, user: accounts.User, asked: accounts.Right) -> bool:
        """As the accounts have it."""
        self._ask()
        return await self._known.may(user, asked)

    async def own_name(self) -> str:
        """As the accounts have it."""
        self._ask()
        return await self._known.own_name()

    def _ask(self) -> None:
        self.asked += 1
        if self.is_away:
            self.was_away.set()
            raise errors.UnavailableError("review", "nobody answers")


class House:
    """A door with accounts over an embedded cluster, and a client for each tenant."""

    def __init__(self, door: AdmissionService, cluster: EmbeddedCluster, app: Litestar) -> None:
        self.door = door
        self.cluster = cluster
        self.app = app
        self.scene = Scene()
        self.accounts: Wavering
        self.now = 0.0
        self.askers: principal.Authenticator

    def client(self, token: str = "") -> httpx.AsyncClient:
        """A client of REST with a token, or without one."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        transport = httpx.ASGITransport(app=self.app)  # type: ignore[arg-type]  # same ASGI
        return httpx.AsyncClient(transport=transport, base_url="http://door", headers=headers)

    def as_(self, user: str) -> httpx.AsyncClient:
        """A client of REST as somebody."""
        return self.client(token_of(user))


def token_of(user: str, audience: str = AUDIENCE) -> str:
    """A user's token for an audience."""
    return f"secret-of-{user}-for-{audience}"


def _hook(doors: list[AdmissionService], kind: Any, way: str, operations: Any) -> Hook:
    async def call(body: bytes) -> bytes:
        return await doors[0].answer(f"/{kind.plural}/{way}", body)

    return Hook(kind=kind, operations=frozenset(operations), mutating=way == "mutate", call=call)


def accounts_file(folder: Path, scene: Scene) -> Path:
    """The scene's accounts and roles, as ``strom up --accounts`` takes them."""
    known = [
        {
            "apiVersion": "local.stromboli.sh/v1",
            "kind": "Account",
            "metadata": {"name": scene.user(user)},
            "tokens": [
                {"value": token_of(user, audience), "audience": audience}
                for audience in (AUDIENCE, OTHER_AUDIENCE)
            ],
        }
        for user in USERS
    ]
    file = folder / "accounts.yaml"
    file.write_text(yaml.safe_dump_all([*known, *scene.rbac()]))
    return file


@contextlib.asynccontextmanager
async def opened(
    folder: Path, scene: Scene, service_accounts: tuple[str, ...] = ()
) -> AsyncIterator[House]:
    """A house below a folder."""
    file = accounts_file(folder, scene)
    wavering = Wavering(files.read(file, OWN_NAME))
    doors: list[AdmissionService] = []
    hooks = [_hook(doors, kind, way, operations) for kind, way, operations in webhooks.RULES]
    async with EmbeddedCluster(folder / "cluster.db", hooks=hooks) as cluster:
        settings = AdmissionSettings(service_accounts=service_accounts)
        house = House(None, cluster, None)  # type: ignore[arg-type]  # both follow
        askers = principal.Authenticator(wavering, 10.0, lambda: house.now, streams_last_s=0.05)
        door = AdmissionService(settings, cluster, runtime.utc_now, askers)
        doors.append(door)
        health = runtime.Health("admission")
        house.askers = askers
        house.door, house.scene, house.accounts = door, scene, wavering
        house.app = rest.front(door, cluster, settings, [health], askers)
        for namespace in (scene.blue, scene.red):
            await cluster.create(kinds.NAMESPACES, "", _document(kinds.NAMESPACES, namespace))
        await cluster.create(kinds.QUEUES, "", _document(kinds.QUEUES, "default", spec={}))
        async with door.feeds:
            yield house


def _document(kind: kinds.Kind[Any], name: str, **rest: Any) -> bytes:
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **rest}
    return msgspec.json.encode(made)
