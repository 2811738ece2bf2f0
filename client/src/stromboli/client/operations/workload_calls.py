"""Requests about flows, templates, crons, device claims and reservations, as ``Call`` values. Sends
nothing."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stromboli.client.operations import calls
from stromboli.client.operations.calls import Call
from stromboli.client.responses import Page
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind

T = TypeVar("T")

WORKLOADS: Mapping[Kind[Any], str] = {
    kinds.JOB_FLOWS: "flow",
    kinds.JOB_TEMPLATES: "template",
    kinds.CRON_JOBS: "cron",
    kinds.RESOURCE_CLAIMS: "claim",
    kinds.RESOURCE_CLAIM_TEMPLATES: "claimtemplate",
}
"""Kinds with the same requests -> the name of one object in errors: kinds that create jobs, and
device claims. ``apply`` creates their objects."""


def workloads(
    kind: Kind[Any], namespace: str = "", *, limit: int = 0, continue_: str = ""
) -> Call[Page]:
    """List the objects of a kind in ``WORKLOADS``, in a namespace or in all."""
    path = _workloads(kind, namespace) if namespace else f"/v1/{kind.plural}"
    return calls.list_page(path, f"{WORKLOADS[kind]}s", limit, continue_)


def workload(kind: Kind[Any], namespace: str, name: str) -> Call[bytes]:
    """Read one object of a kind in ``WORKLOADS``."""
    return _of_workload("GET", kind, namespace, name, "", bytes)


def workload_events(kind: Kind[Any], namespace: str, name: str) -> Call[Page]:
    """List Kubernetes' Events about an object of a kind in ``WORKLOADS``."""
    return _of_workload("GET", kind, namespace, name, "/events", calls.PAGE)


def delete_workload(kind: Kind[Any], namespace: str, name: str) -> Call[None]:
    """Delete an object of a kind in ``WORKLOADS`` with the objects that it owns."""
    return _of_workload("DELETE", kind, namespace, name, "", calls.no_content)


def watch_workloads(kind: Kind[Any], namespace: str = "") -> Call[Any]:
    """Watch the objects of a kind in ``WORKLOADS``, in a namespace or in all."""
    return calls.watch_call(calls.watch_path(kind, namespace), f"{WORKLOADS[kind]}s", kind.decode)


def reservations(*, limit: int = 0, continue_: str = "") -> Call[Page]:
    """List all reservations. ``apply`` creates them."""
    return calls.list_page(_reservations(), "reservations", limit, continue_)


def reservation(name: str) -> Call[bytes]:
    """Read one reservation."""
    path, what = f"{_reservations()}/{calls.path_segment(name)}", f"reservation {name}"
    return Call(method="GET", path=path, what=what, read=bytes)


def delete_reservation(name: str) -> Call[None]:
    """Delete one reservation: its nodes accept all pods again."""
    path, what = f"{_reservations()}/{calls.path_segment(name)}", f"reservation {name}"
    return Call(method="DELETE", path=path, what=what, read=calls.no_content)


def _reservations() -> str:
    return f"/v1/{kinds.ADVANCE_RESERVATIONS.plural}"


def _of_workload(
    method: str, kind: Kind[Any], namespace: str, name: str, below: str, read: Callable[[bytes], T]
) -> Call[T]:
    return Call(
        method=method,
        path=f"{_workloads(kind, namespace)}/{calls.path_segment(name)}{below}",
        what=f"{WORKLOADS[kind]} {namespace}/{name}",
        read=read,
    )


def _workloads(kind: Kind[Any], namespace: str) -> str:
    return f"/v1/namespaces/{calls.path_segment(namespace)}/{kind.plural}"
