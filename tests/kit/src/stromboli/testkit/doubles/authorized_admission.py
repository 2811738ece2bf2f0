"""Admission with accounts on an embedded cluster: the tenants of the accounts contract, a client
for each, and an API server that can be made unavailable.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import yaml
from litestar import Litestar

from stromboli.admission.auth import authentication
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded import accounts as files
from stromboli.embedded.cluster import OWN_NAME, EmbeddedCluster, Webhook
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import accounts
from stromboli.shared.runtime import runtime
from stromboli.testkit.contracts.accounts import AUDIENCE, OTHER_AUDIENCE, Scene
from stromboli.testkit.doubles import shared_rest

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
USERS = ("ann", "ben", "eve", "op")


class FlakyAccounts:
    """Accounts that can be made unavailable; counts requests and signals failed ones."""

    def __init__(self, known: accounts.Accounts) -> None:
        self._known = known
        self.is_away = False
        self.right = 0
        self.was_away = asyncio.Event()

    async def authenticate(
        self, token: str, audiences: Sequence[str]
    ) -> accounts.User | accounts.UnknownToken:
        """Forward the call to the accounts, or fail."""
        self._ask()
        return await self._known.authenticate(token, audiences)

    async def is_allowed(self, user: accounts.User, right: accounts.Right) -> bool:
        """Forward the call to the accounts, or fail."""
        self._ask()
        return await self._known.is_allowed(user, right)

    async def own_username(self) -> str:
        """Forward the call to the accounts, or fail."""
        self._ask()
        return await self._known.own_username()

    def _ask(self) -> None:
        self.right += 1
        if self.is_away:
            self.was_away.set()
            raise errors.UnavailableError("review", "nobody answers")


class AuthorizedAdmission:
    """Admission with accounts on an embedded cluster, and a client for each tenant."""

    def __init__(
        self, admission: AdmissionService, cluster: EmbeddedCluster, app: Litestar
    ) -> None:
        self.admission = admission
        self.cluster = cluster
        self.app = app
        self.scene = Scene()
        self.accounts: FlakyAccounts
        self.now = 0.0
        self.authenticator: authentication.Authenticator

    def client(self, token: str = "") -> httpx.AsyncClient:
        """A client of REST with a token, or without one."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        transport = httpx.ASGITransport(app=self.app)  # type: ignore[arg-type]  # same ASGI
        return httpx.AsyncClient(transport=transport, base_url="http://door", headers=headers)

    def as_(self, user: str) -> httpx.AsyncClient:
        """A REST client of a user."""
        return self.client(token_of(user))


def token_of(user: str, audience: str = AUDIENCE) -> str:
    """A user's token for an audience."""
    return f"secret-of-{user}-for-{audience}"


def _hook(admissions: list[AdmissionService], kind: Any, action: str, operations: Any) -> Webhook:
    async def call(body: bytes) -> bytes:
        return await admissions[0].answer(f"/{kind.plural}/{action}", body)

    return Webhook(
        kind=kind, operations=frozenset(operations), mutating=action == "mutate", call=call
    )


def accounts_file(folder: Path, scene: Scene) -> Path:
    """Write the scene's accounts and roles in the format of ``strom up --accounts``; return the
    file."""
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
    file.write_text(yaml.dump_all([*known, *scene.rbac()], Dumper=_DUMPER))
    return file


@contextlib.asynccontextmanager
async def open_admission(
    folder: Path, scene: Scene, service_accounts: tuple[str, ...] = ()
) -> AsyncIterator[AuthorizedAdmission]:
    """Run admission on an embedded cluster whose files are in ``folder``, while inside."""
    file = accounts_file(folder, scene)
    wavering = FlakyAccounts(files.read(file, OWN_NAME))
    admissions: list[AdmissionService] = []
    hooks = [
        _hook(admissions, kind, action, operations) for kind, action, operations in webhooks.RULES
    ]
    async with (
        EmbeddedCluster(folder / "cluster.db", hooks=hooks) as cluster,
        contextlib.AsyncExitStack() as stack,
    ):
        settings = AdmissionSettings(service_accounts=service_accounts)
        server = AuthorizedAdmission(None, cluster, None)  # type: ignore[arg-type]  # both follow
        authenticator = authentication.Authenticator(
            wavering, 10.0, lambda: server.now, streams_last_s=0.05
        )
        admission = AdmissionService(settings, cluster, runtime.utc_now, authenticator)
        admissions.append(admission)
        health = runtime.Health("admission")
        server.authenticator = authenticator
        server.admission, server.scene, server.accounts = admission, scene, wavering
        server.app = stack.enter_context(
            shared_rest.rest_of(admission, cluster, health, authenticator, settings)
        )
        for namespace in (scene.blue, scene.red):
            await cluster.create(kinds.NAMESPACES, "", _document(kinds.NAMESPACES, namespace))
        await cluster.create(kinds.QUEUES, "", _document(kinds.QUEUES, "default", spec={}))
        async with admission.watch_caches:
            yield server


def _document(kind: kinds.Kind[Any], name: str, **rest: Any) -> bytes:
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **rest}
    return msgspec.json.encode(made)
