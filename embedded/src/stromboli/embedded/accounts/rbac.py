"""Kubernetes' role based access control over manifests, as far as rules about resources go.

Rights only add up: there is no rule that takes one away. Source: Kubernetes' documentation, "Using
RBAC Authorization". Roles that are put together by label (``aggregationRule``) and rules about
URLs are refused by the reader, since nothing here would ever fill them.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from stromboli.shared.cluster.accounts import Right, User

GROUP = "rbac.authorization.k8s.io"
ALL = "*"


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of what a manifest is made of."""


class Rule(_Part, frozen=True):
    """Verbs on resources. Without ``resource_names`` on objects of every name."""

    verbs: tuple[str, ...]
    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    resource_names: tuple[str, ...] = ()

    def gives(self, asked: Right) -> bool:
        """Whether the right follows from this rule."""
        return (
            bool({ALL, asked.verb} & set(self.verbs))
            and bool({ALL, asked.group} & set(self.api_groups))
            and bool(self._named(asked) & set(self.resources))
            and (not self.resource_names or asked.name in self.resource_names)
        )

    def _named(self, asked: Right) -> set[str]:
        """How a rule may name the resource."""
        return {ALL, asked.path} | ({f"{ALL}/{asked.subresource}"} if asked.subresource else set())


class Subject(_Part, frozen=True):
    """Who is bound to a role."""

    kind: Literal["User", "Group", "ServiceAccount"]
    name: str
    namespace: str = ""
    api_group: str = ""

    def is_a(self, user: User) -> bool:
        """Whether somebody is meant."""
        if self.kind == "Group":
            return self.name in user.groups
        if self.kind == "ServiceAccount":
            return user.name == f"system:serviceaccount:{self.namespace}:{self.name}"
        return user.name == self.name


class RoleRef(_Part, frozen=True):
    """The role that a binding is of."""

    kind: Literal["Role", "ClusterRole"]
    name: str
    api_group: str = GROUP


class Binding(msgspec.Struct, frozen=True):
    """A RoleBinding, or a ClusterRoleBinding, whose ``namespace`` is empty."""

    namespace: str
    subjects: tuple[Subject, ...]
    role: RoleRef


class Policy(msgspec.Struct, frozen=True):
    """Roles by (kind, namespace, name), and who is bound to them."""

    roles: Mapping[tuple[str, str, str], tuple[Rule, ...]] = {}
    bindings: tuple[Binding, ...] = ()

    def allows(self, user: User, asked: Right) -> bool:
        """Whether somebody may. A binding in a namespace says nothing beyond it."""
        return any(
            rule.gives(asked)
            for binding in self.bindings
            if binding.namespace in ("", asked.namespace)
            and any(subject.is_a(user) for subject in binding.subjects)
            for rule in self._rules(binding)
        )

    def _rules(self, binding: Binding) -> tuple[Rule, ...]:
        """None for a role that is not there: as an API server has it."""
        namespace = binding.namespace if binding.role.kind == "Role" else ""
        return self.roles.get((binding.role.kind, namespace, binding.role.name), ())
