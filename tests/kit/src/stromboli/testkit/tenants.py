"""Tenants on a real API server: service accounts, roles, and tokens for an audience."""

from collections.abc import Iterable, Sequence
from typing import Any

from stromboli.testkit.contracts.accounts import Scene
from stromboli.testkit.parts.api import Api

USERS = ("ann", "ben", "eve", "op")
TOKEN_S = 600
"""The shortest lifetime in seconds that an API server allows for a token."""


async def create(api: Api, scene: Scene) -> None:
    """Create the namespaces, service accounts and roles of a scene."""
    for namespace in (scene.blue, scene.red):
        await api.create_namespace(namespace)
    for user in USERS:
        await create_account(api, scene.home(user), user)
    await grant(api, scene.rbac())


async def create_account(api: Api, namespace: str, name: str) -> None:
    """Create a service account."""
    await api.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}}
    )


async def grant(api: Api, manifests: Iterable[dict[str, Any]]) -> None:
    """Create RBAC objects."""
    for document in manifests:
        namespace = document["metadata"].get("namespace")
        below = f"/namespaces/{namespace}" if namespace else ""
        plural = document["kind"].lower() + "s"
        await api.create(f"/apis/rbac.authorization.k8s.io/v1{below}/{plural}", document)


async def token(api: Api, namespace: str, name: str, audience: str = "") -> str:
    """A token of a service account, for an audience or for the API server itself."""
    spec: dict[str, Any] = {"expirationSeconds": TOKEN_S}
    if audience:
        spec["audiences"] = [audience]
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    made = await api.create(path, {"spec": spec})
    return str(made["status"]["token"])


async def tokens(api: Api, scene: Scene, audiences: Sequence[str]) -> dict[tuple[str, str], str]:
    """(user, audience) -> a token."""
    return {
        (user, audience): await token(api, scene.home(user), user, audience)
        for user in USERS
        for audience in audiences
    }
