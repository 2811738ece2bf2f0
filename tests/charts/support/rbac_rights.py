"""Rights that roles grant, and rights that were used according to the API server's audit log."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from stromboli.shared.api import kinds
from tests.charts.support.helm import ROOT, Object

_TABLE = ROOT / "services/admission/README.md"


class Right(msgspec.Struct, frozen=True, order=True):
    """One verb on one resource (with its subresource), perhaps of one name alone."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        of = f".{self.group}" if self.group else ""
        return f"{self.verb} {self.resource}{of}" + (f" {self.name!r}" if self.name else "")


class AuditedRequest(msgspec.Struct, frozen=True):
    """What an account did, and whether it might."""

    user: str
    right: Right
    namespace: str
    is_allowed: bool


def granted(roles: Iterable[Object]) -> set[Right]:
    """Each right by itself that rules give."""
    return {
        Right(group, resource, verb, name)
        for role in roles
        for rule in role["rules"]
        for group, resource, verb, name in itertools.product(
            rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", [""])
        )
    }


def documented() -> set[Right]:
    """The rights that admission needs when REST is enabled, from the table in its README."""
    rights = set()
    for line in _TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or "`" not in cells[1] or not set(cells[2].split(", ")) <= VERBS:
            continue
        groups = [cell.strip("`").replace("core", "") for cell in cells[0].split(", ")]
        for resource in (cell.strip("`") for cell in cells[1].split(", ")):
            of = {kind.group for kind in kinds.BY_NAME.values() if kind.plural == resource}
            (group,) = of & set(groups) or groups
            rights |= {Right(group, resource, verb) for verb in cells[2].split(", ")}
    return rights


VERBS = frozenset({"get", "list", "watch", "create", "patch", "delete"})


def bound(objects: Sequence[Object], account: str) -> list[Object]:
    """The roles that bindings give to a service account."""
    names = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in objects
        if each["kind"] in ("ClusterRoleBinding", "RoleBinding")
        and account in [subject["name"] for subject in each.get("subjects", [])]
    }
    return [each for each in objects if (each["kind"], each["metadata"]["name"]) in names]


def audited_requests(audit_log: Path) -> Iterator[AuditedRequest]:
    """The requests of service accounts, from the events of an audit.k8s.io/v1 log."""
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        user = event["user"]["username"]
        about: Mapping[str, str] = event.get("objectRef", {})
        if not user.startswith("system:serviceaccount:") or "resource" not in about:
            continue
        resource = about["resource"]
        if about.get("subresource"):
            resource += f"/{about['subresource']}"
        right = Right(about.get("apiGroup", ""), resource, event["verb"], about.get("name", ""))
        decision = event["annotations"].get("authorization.k8s.io/decision", "")
        yield AuditedRequest(user, right, about.get("namespace", ""), decision == "allow")


def unused(rights: Iterable[Right], done: Iterable[AuditedRequest]) -> list[Right]:
    """Rights without which all requests would have succeeded."""
    used = {each.right for each in done if each.is_allowed}
    used |= {msgspec.structs.replace(right, name="") for right in used}
    return sorted(right for right in rights if right not in used)
