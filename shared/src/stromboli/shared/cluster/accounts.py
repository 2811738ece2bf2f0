"""The port for authentication and authorization: the cluster's accounts and RBAC rights.

Every adapter provides these guarantees, which the contract suite
``stromboli.testkit.contracts.accounts`` tests: a token is valid only for the audience it was issued
for; rights are those of Kubernetes' RBAC. A check that cannot be completed raises an error, so that
*unknown* is never treated as *allowed*.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from stromboli.shared.api.kinds import Kind


class User(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated user of the cluster: the subject of RBAC rights."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}

    def __hash__(self) -> int:
        return hash((self.name, self.uid, self.groups))


class UnknownToken(msgspec.Struct, frozen=True):
    """A token that was not authenticated, and why."""

    reason: str


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """A verb on a resource. An empty ``namespace`` means all namespaces, or a cluster-scoped kind;
    an empty ``name`` means objects of every name.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def of_every_name(self) -> "Right":
        """The same right on objects of every name."""
        return msgspec.structs.replace(self, name="")

    @property
    def path(self) -> str:
        """The resource in RBAC's notation, such as ``pods/log``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def denial_message(self, user: str) -> str:
        """The message that an API server gives a user who lacks this right."""
        what = f'resource "{self.path}"' + (f' named "{self.name}"' if self.name else "")
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'User "{user}" cannot {self.verb} {what} in API group "{self.group}" {where}'

    @property
    def rule(self) -> str:
        """The RBAC rule that grants the right, and the kind of role to put it in, as text."""
        role = f"Role of namespace {self.namespace}" if self.namespace else "ClusterRole"
        group = self.group or '""'
        return (
            f"a {role} bound to them with the rule "
            f"{{apiGroups: [{group}], resources: [{self.path}], verbs: [{self.verb}]}}"
        )


def right(
    verb: str, kind: Kind[Any], namespace: str = "", name: str = "", subresource: str = ""
) -> Right:
    """The right to use a verb on a kind, or on an object of it."""
    return Right(
        verb=verb,
        group=kind.group,
        resource=kind.plural,
        subresource=subresource,
        namespace=namespace if kind.namespaced else "",
        name=name,
    )


class Accounts(Protocol):
    """Authenticates tokens and authorizes requests."""

    async def authenticate(self, token: str, audiences: Sequence[str]) -> User | UnknownToken:
        """The user of a token that was issued for one of these audiences.

        Raises UnavailableError if that cannot be determined now.
        """

    async def is_allowed(self, user: User, right: Right) -> bool:
        """Whether the user has the right. Raises UnavailableError if that cannot be determined."""

    async def own_username(self) -> str:
        """The user name of this process. Raises UnavailableError."""
