"""The accounts file: YAML documents of Kubernetes RBAC kinds and of the kind ``Account``.

::

    apiVersion: local.stromboli.sh/v1
    kind: Account
    metadata: {name: anna}
    groups: [vision]
    tokens:
    - {value: a-secret, audience: stromboli}

The file is read once, at the start. Unknown kinds and fields are rejected: a right that cannot be
interpreted must be neither granted nor denied.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from stromboli.embedded.accounts import rbac
from stromboli.shared import decoding
from stromboli.shared.cluster import accounts
from stromboli.shared.formats import documents

API_VERSION = "local.stromboli.sh/v1"
AUTHENTICATED = "system:authenticated"
SERVICE_ACCOUNT = "system:serviceaccount:"


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bearer token and the audience for which it is valid."""

    value: str
    audience: str

    def __repr__(self) -> str:
        return f"Token(audience={self.audience!r})"


class Account(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A user with groups and tokens."""

    api_version: str
    kind: str
    metadata: _Metadata
    groups: tuple[str, ...] = ()
    tokens: tuple[Token, ...] = ()


class _Role(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    metadata: _Metadata
    rules: tuple[rbac.Rule, ...] = ()


class _Binding(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    metadata: _Metadata
    role_ref: rbac.RoleRef
    subjects: tuple[rbac.Subject, ...] = ()


class FileAccounts:
    """Implements ``accounts.Accounts`` from a file. ``own_username``: the user name under which the
    embedded cluster writes.
    """

    def __init__(self, known: Sequence[Account], policy: rbac.Policy, own_username: str) -> None:
        self._known = tuple(known)
        self._policy = policy
        self._own_name = own_username

    async def authenticate(
        self, token: str, audiences: Sequence[str]
    ) -> accounts.User | accounts.UnknownToken:
        """Authenticate a token against the file."""
        audience = ""
        for account in self._known:
            for own in account.tokens:
                if own.value == token:
                    if own.audience in audiences:
                        return user_of(account)
                    audience = own.audience
        if audience:
            return accounts.UnknownToken(
                f"the token is for {audience}, not {' or '.join(audiences)}"
            )
        return accounts.UnknownToken("no account has this token")

    async def is_allowed(self, user: accounts.User, right: accounts.Right) -> bool:
        """Authorize a request by the roles of the file."""
        return self._policy.allows(user, right)

    async def own_username(self) -> str:
        """Return the configured user name."""
        return self._own_name


def user_of(account: Account) -> accounts.User:
    """Return the user of an account, with the groups that an API server adds."""
    name = account.metadata.name
    groups = [*account.groups]
    if name.startswith(SERVICE_ACCOUNT):
        namespace = name.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return accounts.User(name=name, groups=(*groups, AUTHENTICATED))


def read(path: Path, own_username: str) -> FileAccounts:
    """Read an accounts file. Raises ValueError with file, line and reason."""
    try:
        return parse(path.read_text(encoding="utf-8"), own_username)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"accounts {path}: {error}") from None
    except ValueError as error:
        raise ValueError(f"accounts {path}: {error}") from None


def parse(text: str, own_username: str) -> FileAccounts:
    """Parse the text of an accounts file. Raises ValueError."""
    known: list[Account] = []
    roles: dict[tuple[str, str, str], tuple[rbac.Rule, ...]] = {}
    bindings: list[rbac.Binding] = []
    for document, tree in documents.read(text):
        kind = document.get("kind") if isinstance(document, dict) else None
        try:
            match kind:
                case "Account":
                    known.append(_converted(document, Account, API_VERSION))
                case "Role" | "ClusterRole":
                    role = _converted(document, _Role, f"{rbac.GROUP}/v1")
                    place = _place(role.metadata, is_namespaced=kind == "Role")
                    roles[kind, place, role.metadata.name] = role.rules
                case "RoleBinding" | "ClusterRoleBinding":
                    binding = _converted(document, _Binding, f"{rbac.GROUP}/v1")
                    place = _place(binding.metadata, is_namespaced=kind == "RoleBinding")
                    bindings.append(rbac.Binding(place, binding.subjects, binding.role_ref))
                case _:
                    raise ValueError(
                        f"kind {kind!r}: it must be Account, Role, ClusterRole, RoleBinding or "
                        "ClusterRoleBinding"
                    )
        except ValueError as error:  # includes msgspec.ValidationError
            raise ValueError(f"line {tree.line}: {error}") from None
    return FileAccounts(known, rbac.Policy(roles, tuple(bindings)), own_username)


def _converted(document: dict[str, Any], struct: type[Any], api_version: str) -> Any:
    if document.get("apiVersion") != api_version:
        raise ValueError(f"apiVersion {document.get('apiVersion')!r}: it must be {api_version}")
    return decoding.convert(document, struct)


def _place(metadata: _Metadata, *, is_namespaced: bool) -> str:
    if not is_namespaced:
        return ""
    return metadata.namespace or "default"
