"""Kubernetes role-based access control over manifests, for rules about resources.

Rules only grant rights; none denies one. Source: Kubernetes documentation, "Using RBAC
Authorization". ``file`` rejects roles with an ``aggregationRule`` and rules about URLs, which are
not evaluated here.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from stromboli.shared.cluster.accounts import Right, User

GROUP = "rbac.authorization.k8s.io"
ALL = "*"


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base class of parts of manifests; unknown fields are rejected."""


class Rule(_Part, frozen=True):
    """Verbs on resources. An empty ``resource_names`` matches objects of any name."""

    verbs: tuple[str, ...]
    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    resource_names: tuple[str, ...] = ()

    def grants(self, right: Right) -> bool:
        """Return whether the rule grants the right."""
        return (
            bool({ALL, right.verb} & set(self.verbs))
            and bool({ALL, right.group} & set(self.api_groups))
            and bool(self._named(right) & set(self.resources))
            and (not self.resource_names or right.name in self.resource_names)
        )

    def _named(self, right: Right) -> set[str]:
        """Return the forms in which a rule may name the requested resource."""
        return {ALL, right.path} | ({f"{ALL}/{right.subresource}"} if right.subresource else set())


class Subject(_Part, frozen=True):
    """A subject of a role binding."""

    kind: Literal["User", "Group", "ServiceAccount"]
    name: str
    namespace: str = ""
    api_group: str = ""

    def is_a(self, user: User) -> bool:
        """Return whether the subject matches the user."""
        if self.kind == "Group":
            return self.name in user.groups
        if self.kind == "ServiceAccount":
            return user.name == f"system:serviceaccount:{self.namespace}:{self.name}"
        return user.name == self.name


class RoleRef(_Part, frozen=True):
    """The role that a binding grants."""

    kind: Literal["Role", "ClusterRole"]
    name: str
    api_group: str = GROUP


class Binding(msgspec.Struct, frozen=True):
    """A RoleBinding, or a ClusterRoleBinding, whose ``namespace`` is empty."""

    namespace: str
    subjects: tuple[Subject, ...]
    role: RoleRef


class Policy(msgspec.Struct, frozen=True):
    """Roles by (kind, namespace, name), and their bindings."""

    roles: Mapping[tuple[str, str, str], tuple[Rule, ...]] = {}
    bindings: tuple[Binding, ...] = ()

    def allows(self, user: User, right: Right) -> bool:
        """Return whether the user has the right. A RoleBinding applies to its own namespace
        only."""
        return any(
            rule.grants(right)
            for binding in self.bindings
            if binding.namespace in ("", right.namespace)
            and any(subject.is_a(user) for subject in binding.subjects)
            for rule in self._rules(binding)
        )

    def _rules(self, binding: Binding) -> tuple[Rule, ...]:
        """Return the rules of the bound role. A role that does not exist has none, as on an API
        server.
        """
        namespace = binding.namespace if binding.role.kind == "Role" else ""
        return self.roles.get((binding.role.kind, namespace, binding.role.name), ())
