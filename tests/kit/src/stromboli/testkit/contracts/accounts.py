"""The accounts contract: the results of TokenReview and SubjectAccessReview, for each adapter.

An adapter's test provides ``setting``: the ``Scene`` below, created in the adapter. Its names are
unique, so that tests can share a server.
"""

from typing import Any

import msgspec
import pytest

from stromboli.shared.api import kinds
from stromboli.shared.cluster import accounts
from stromboli.shared.cluster.accounts import right
from stromboli.testkit import objects

AUDIENCE, OTHER_AUDIENCE = "stromboli", "stromboli-submissions"
RBAC = "rbac.authorization.k8s.io"
JOBS, PODS, QUEUES, NODES = kinds.JOBS, kinds.PODS, kinds.QUEUES, kinds.NODES


class Scene:
    """Two tenants with a namespace each, and roles.

    ``ann`` has the rights of her namespace's roles, ``ben`` only those of his group, ``eve`` none,
    and ``op`` those of a role in the whole cluster.
    """

    def __init__(self) -> None:
        self.blue, self.red = objects.unique("blue"), objects.unique("red")
        self.cluster_role = objects.unique("role")

    def user(self, name: str) -> str:
        """The full name of a user, who is a service account."""
        return f"system:serviceaccount:{self.home(name)}:{name}"

    def home(self, name: str) -> str:
        """The namespace of a user's service account."""
        return self.red if name == "ben" else self.blue

    def rbac(self) -> list[dict[str, Any]]:
        """The roles, as manifests."""
        work = [rule(JOBS, "get", "list", "watch", "create"), rule(PODS, "list")]
        own = [rule(PODS, "get", subresource="log"), rule(QUEUES, "*")]
        named = {**rule(kinds.CONFIG_MAPS, "get"), "resourceNames": ["the-one"]}
        ann = {"kind": "ServiceAccount", "name": "ann", "namespace": self.blue}
        op = {"kind": "ServiceAccount", "name": "op", "namespace": self.blue}
        reds = {"kind": "Group", "name": f"system:serviceaccounts:{self.red}", "apiGroup": RBAC}
        everything = objects.unique("all")
        return [
            manifest("Role", "work", self.blue, rules=[*work, *own, named]),
            binding("work", self.blue, ref("Role", "work"), ann),
            manifest("ClusterRole", self.cluster_role, rules=work),
            binding("reds", self.red, ref("ClusterRole", self.cluster_role), reds),
            manifest("ClusterRole", everything, rules=[any_of("batch.volcano.sh")]),
            binding(everything, "", ref("ClusterRole", everything), op),
            binding("of-nothing", self.blue, ref("Role", "not-there"), ann),
        ]


def rule(kind: kinds.Kind[Any], *verbs: str, subresource: str = "") -> dict[str, Any]:
    """An RBAC rule about a kind."""
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return {"apiGroups": [kind.group], "resources": [resource], "verbs": list(verbs)}


def any_of(group: str) -> dict[str, Any]:
    """A rule that grants all verbs on all resources of an API group."""
    return {"apiGroups": [group], "resources": ["*"], "verbs": ["*"]}


def ref(kind: str, name: str) -> dict[str, Any]:
    """A reference to a role."""
    return {"apiGroup": RBAC, "kind": kind, "name": name}


def manifest(kind: str, name: str, namespace: str = "", **rest: Any) -> dict[str, Any]:
    """A manifest of an RBAC kind."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, **rest}


def binding(
    name: str, namespace: str, role: dict[str, Any], *subjects: dict[str, Any]
) -> dict[str, Any]:
    """A RoleBinding, or without a namespace a ClusterRoleBinding."""
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    return manifest(kind, name, namespace, roleRef=role, subjects=list(subjects))


class Setting(msgspec.Struct):
    """A scene that was created in an adapter. ``tokens``: (user, audience) -> token."""

    scene: Scene
    known: accounts.Accounts
    tokens: dict[tuple[str, str], str]

    async def user(self, name: str) -> accounts.User:
        """The principal of a user's token."""
        found = await self.known.authenticate(self.tokens[name, AUDIENCE], [AUDIENCE])
        assert isinstance(found, accounts.User)
        return found

    async def may(self, name: str, verb: str, kind: Any, *place: str, **rest: str) -> bool:
        """Whether a principal has a right."""
        return await self.known.is_allowed(await self.user(name), right(verb, kind, *place, **rest))


class AccountsContract:
    """The tests of the contract."""

    @pytest.fixture
    def setting(self) -> Setting:
        """The scene, created in the adapter; see the module."""
        raise NotImplementedError

    async def test_a_token_authenticates_its_user(self, setting: Setting) -> None:
        scene = setting.scene
        user = await setting.user("ann")
        assert user.name == scene.user("ann")
        assert f"system:serviceaccounts:{scene.blue}" in user.groups
        assert "system:authenticated" in user.groups

    async def test_a_token_is_valid_only_for_its_audience(self, setting: Setting) -> None:
        own = setting.tokens["ann", OTHER_AUDIENCE]
        assert isinstance(await setting.known.authenticate(own, [OTHER_AUDIENCE]), accounts.User)
        found = await setting.known.authenticate(own, [AUDIENCE])
        assert isinstance(found, accounts.UnknownToken)
        assert found.reason

    async def test_one_of_several_audiences_is_enough(self, setting: Setting) -> None:
        both = [AUDIENCE, OTHER_AUDIENCE]
        for audience in both:
            found = await setting.known.authenticate(setting.tokens["ann", audience], both)
            assert isinstance(found, accounts.User)

    @pytest.mark.parametrize("token", ["nonsense", "eyJhbGciOiJub25lIn0.e30.", "a b", "x" * 5000])
    async def test_an_unknown_token_authenticates_no_user(
        self, setting: Setting, token: str
    ) -> None:
        found = await setting.known.authenticate(token, [AUDIENCE])
        assert isinstance(found, accounts.UnknownToken)
        assert token not in found.reason

    async def test_a_role_grants_its_verbs_in_its_namespace(self, setting: Setting) -> None:
        blue, red = setting.scene.blue, setting.scene.red
        assert await setting.may("ann", "create", JOBS, blue)
        assert not await setting.may("ann", "delete", JOBS, blue)
        assert not await setting.may("ann", "create", JOBS, red)
        assert not await setting.may("ann", "list", JOBS)

    async def test_a_user_without_a_role_has_no_rights(self, setting: Setting) -> None:
        assert not await setting.may("eve", "list", JOBS, setting.scene.blue)
        assert not await setting.may("eve", "list", QUEUES)

    async def test_a_cluster_role_bound_in_a_namespace_applies_only_there(
        self, setting: Setting
    ) -> None:
        """The RoleBinding names a group of the user."""
        assert await setting.may("ben", "create", JOBS, setting.scene.red)
        assert not await setting.may("ben", "create", JOBS, setting.scene.blue)
        assert not await setting.may("ben", "list", JOBS)

    async def test_a_right_in_the_cluster_applies_to_every_namespace(
        self, setting: Setting
    ) -> None:
        for namespace in ("", setting.scene.blue, setting.scene.red):
            assert await setting.may("op", "list", JOBS, namespace)
        assert await setting.may("op", "delete", JOBS, setting.scene.red, "any")
        assert not await setting.may("op", "list", PODS, setting.scene.red)

    async def test_a_role_in_a_namespace_grants_no_cluster_scoped_rights(
        self, setting: Setting
    ) -> None:
        """Queues are cluster-scoped, so a Role that names them grants nothing."""
        assert not await setting.may("ann", "list", QUEUES)

    async def test_a_subresource_is_a_separate_right(self, setting: Setting) -> None:
        blue = setting.scene.blue
        assert await setting.may("ann", "get", PODS, blue, "p", subresource="log")
        assert not await setting.may("ann", "get", PODS, blue, "p")
        assert not await setting.may("ben", "get", PODS, setting.scene.red, "p", subresource="log")

    async def test_a_right_may_be_for_objects_of_a_name(self, setting: Setting) -> None:
        blue = setting.scene.blue
        assert await setting.may("ann", "get", kinds.CONFIG_MAPS, blue, "the-one")
        assert not await setting.may("ann", "get", kinds.CONFIG_MAPS, blue, "another")
        assert not await setting.may("ann", "get", kinds.CONFIG_MAPS, blue)

    async def test_a_right_for_every_name_is_one_for_each(self, setting: Setting) -> None:
        blue = setting.scene.blue
        assert await setting.may("ann", "get", JOBS, blue)
        assert await setting.may("ann", "get", JOBS, blue, "any")

    async def test_we_have_a_name_ourselves(self, setting: Setting) -> None:
        assert await setting.known.own_username()
