"""The port to who asks and what they may do: the cluster's own accounts and rights.

Promises of every adapter, held by the contract suite ``stromboli.testkit.contracts.accounts``: a
token counts for the audience it was made for and no other; rights are those of Kubernetes' RBAC. A
question that cannot be answered raises, so that *unknown* is never taken for *allowed*.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from stromboli.shared.api.kinds import Kind


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Who somebody is, as the cluster has it: what rights are given to."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}

    def __hash__(self) -> int:
        return hash((self.name, self.uid, self.groups))


class UnknownToken(msgspec.Struct, frozen=True):
    """A token nobody is known by, and why."""

    reason: str


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """To do something with a resource. An empty ``namespace`` means all of them, or a kind that has
    none; an empty ``name`` means objects of every name."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def of_every_name(self) -> "Right":
        """The wider right: the same on objects of every name."""
        return msgspec.structs.replace(self, name="")

    @property
    def path(self) -> str:
        """The resource as RBAC has it, such as ``pods/log``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def denial_message(self, user: str) -> str:
        """That somebody lacks it, in the words API servers have for it."""
        what = f'resource "{self.path}"' + (f' named "{self.name}"' if self.name else "")
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'User "{user}" cannot {self.verb} {what} in API group "{self.group}" {where}'

    @property
    def rule(self) -> str:
        """The RBAC rule that gives it, and where that has to stand."""
        role = f"Role of namespace {self.namespace}" if self.namespace else "ClusterRole"
        group = self.group or '""'
        return (
            f"a {role} bound to them with the rule "
            f"{{apiGroups: [{group}], resources: [{self.path}], verbs: [{self.verb}]}}"
        )


def right(
    verb: str, kind: Kind[Any], namespace: str = "", name: str = "", subresource: str = ""
) -> Right:
    """The right to a verb on a kind."""
    return Right(
        verb=verb,
        group=kind.group,
        resource=kind.plural,
        subresource=subresource,
        namespace=namespace if kind.namespaced else "",
        name=name,
    )


class Accounts(Protocol):
    """Whom a cluster knows, and what it lets them do."""

    async def who(self, token: str, audiences: Sequence[str]) -> User | UnknownToken:
        """Who came with a token that was made for one of these audiences.

        Raises UnavailableError if that cannot be said now.
        """

    async def may(self, user: User, asked: Right) -> bool:
        """Whether they may. Raises UnavailableError if that cannot be said now."""

    async def own_username(self) -> str:
        """The name under which we ourselves write. Raises UnavailableError."""
