"""The complete view of one job, as in ``vcctl job view`` and ``vjobs -n``. Pure.

Each level is indented by two more spaces; labels of one block have the same width, followed by a
tab.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from stromboli.shared.api.meta import Part
from stromboli.shared.formats import units
from stromboli.vcctl import tables

_NO_TIME = "0001-01-01 00:00:00 +0000 UTC"
"""Volcano's output of the zero time."""
_TEMPLATE_ANNOTATIONS = (
    ("Cri . Cci . Io / Container - Type", "cri.cci.io/container-type"),
    ("Kubernetes . Io / Availablezone", "kubernetes.io/availablezone"),
    ("Network . Alpha . Kubernetes . Io / Network", "network.alpha.kubernetes.io/network"),
)
_COUNTS = (
    ("Succeeded", "succeeded"),
    ("Pending", "pending"),
    ("Running", "running"),
    ("Failed", "failed"),
    ("Terminating", "terminating"),
    ("Unknown", "unknown"),
    ("RetryCount", "retryCount"),
    ("Min Available", "minAvailable"),
    ("Version", "version"),
)
_EVENT_WIDTHS = (15, 40, 30, 40)
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("k", "M", "G", "T", "P", "E")


class Source(Part, frozen=True, kw_only=True):
    """The component that reported an event."""

    component: str = ""
    host: str = ""


class Event(Part, frozen=True, kw_only=True):
    """A Kubernetes Event."""

    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    source: Source = Source()


def job(document: dict[str, Any], *, with_conditions: bool) -> list[str]:
    """The job's sections up to its status."""
    metadata, spec, status = (document.get(part) or {} for part in ("metadata", "spec", "status"))
    lines = [
        *_block(
            0,
            12,
            ("Name", metadata.get("name", "")),
            ("Namespace", metadata.get("namespace", "")),
            ("Labels", _json(metadata.get("labels"))),
            ("Annotations", _json(metadata.get("annotations"))),
            ("API Version", document.get("apiVersion", "")),
            ("Kind", document.get("kind", "")),
        ),
        "Metadata:",
        *_block(
            1,
            19,
            ("Creation Timestamp", _time(metadata.get("creationTimestamp"))),
            ("Generate Name", metadata.get("generateName", "")),
            ("Generation", metadata.get("generation", 0)),
            ("Resource Version", metadata.get("resourceVersion", "")),
            ("UID", metadata.get("uid", "")),
        ),
        "Spec:",
        *_block(1, 19, ("Min Available", spec.get("minAvailable", 0))),
        "  Plugins:",
        *_block(2, 0, ("Env", _plugin(spec, "env"))),
        *_block(2, 0, ("Ssh", _plugin(spec, "ssh"))),
        *_block(1, 19, ("Scheduler Name", spec.get("schedulerName", ""))),
        "  Tasks:",
    ]
    for task in spec.get("tasks") or ():
        lines += _task(task)
    return [*lines, "Status:", *_status(status, with_conditions=with_conditions)]


def events(recorded: Sequence[Event], now: datetime) -> list[str]:
    """The table of events, or one line if there are none."""
    if not recorded:
        return ["Events: \t<none>"]
    rows = [("Type", "Reason", "Age", "Form", "Message"), ("-------",) * 5]
    for one in recorded:
        first = tables.age(one.first_timestamp, now)
        last = tables.age(one.last_timestamp, now)
        when = f"{last} (x{one.count} over {first})" if one.count > 1 else first
        source = ", ".join(filter(None, (one.source.component, one.source.host)))
        rows.append((one.type, one.reason, when, source, one.message.strip()))
    return [
        "Events:",
        *(
            "\t".join(
                (
                    *(cell.ljust(width) for cell, width in zip(row, _EVENT_WIDTHS, strict=False)),
                    row[4],
                )
            )
            for row in rows
        ),
    ]


def canonical(quantity: str | int | float | None) -> str:
    """A quantity as Kubernetes prints it: an integer with the largest possible suffix."""
    if quantity is None:
        return "0"
    value = units.quantity(quantity)
    if str(quantity).endswith("i"):
        suffixes, step = _BINARY, Decimal(1024)
    else:
        suffixes, step = _DECIMAL, Decimal(1000)
    if value != value.to_integral_value():
        return f"{int((value * 1000).to_integral_value(rounding='ROUND_CEILING'))}m"
    suffix = ""
    for bigger in suffixes:
        if value == 0 or value % step:
            break
        value, suffix = value / step, bigger
    return f"{int(value)}{suffix}"


def _task(task: dict[str, Any]) -> Iterator[str]:
    template = task.get("template") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    pod = template.get("spec") or {}
    yield from _block(2, 0, ("Name", task.get("name", "")))
    yield from _block(2, 0, ("Replicas", task.get("replicas", 0)))
    yield _line(2, "Template:")
    yield _line(3, "Metadata:")
    yield _line(4, "Annotations:")
    named = [(label, annotations.get(key, "")) for label, key in _TEMPLATE_ANNOTATIONS]
    yield from _block(5, 44, *named)
    yield from _block(4, 0, ("Creation Timestamp", _NO_TIME))
    yield _line(3, "Spec:")
    yield _line(4, "Containers:")
    for container in pod.get("containers") or ():
        yield from _container(container)
    yield _line(4, "Image Pull Secrets:")
    for secret in pod.get("imagePullSecrets") or ():
        yield from _block(5, 10, ("Name", secret.get("name", "")))
    yield from _block(4, 18, ("Restart Policy", pod.get("restartPolicy", "")))


def _container(container: dict[str, Any]) -> Iterator[str]:
    yield _line(5, "Command:")
    for word in container.get("command") or ():
        yield _line(6, word)
    yield from _block(5, 6, ("Image", container.get("image", "")), ("Name", container.get("name")))
    yield _line(5, "Ports:")
    for port in container.get("ports") or ():
        number = port.get("containerPort", 0)
        yield from _block(6, 15, ("Container Port", number), ("Name", port.get("name", "")))
    yield _line(5, "Resources:")
    for part in ("limits", "requests"):
        amounts = (container.get("resources") or {}).get(part) or {}
        yield _line(6, f"{part.capitalize()}:")
        cpu, memory = (canonical(amounts.get(name)) for name in ("cpu", "memory"))
        yield from _block(7, 7, ("Cpu", cpu), ("Memory", memory))
    yield from _block(6, 0, ("Working Dir", container.get("workingDir", "")))


def _status(status: dict[str, Any], *, with_conditions: bool) -> Iterator[str]:
    counts = ((label, status.get(key, 0)) for label, key in _COUNTS)
    yield from _block(1, 14, *((label, count) for label, count in counts if count > 0))
    yield _line(1, "State:")
    yield from _block(2, 0, ("Phase", (status.get("state") or {}).get("phase", "")))
    if controlled := status.get("controlledResources"):
        yield _line(1, "Controlled Resources:")
        for key, value in sorted(controlled.items()):
            yield _line(2, f"{key}: \t{value}")
    if with_conditions and (conditions := status.get("conditions")):
        yield _line(1, "Conditions:")
        for one in conditions:
            changed = _time(one.get("lastTransitionTime"))
            yield from _block(2, 15, ("Status", one.get("status", "")), ("TransitionTime", changed))


def _block(level: int, width: int, *rows: tuple[str, object]) -> Iterator[str]:
    for label, value in rows:
        yield _line(level, f"{label}:".ljust(width) + f"\t{value}")


def _line(level: int, text: str) -> str:
    return "  " * level + text


def _json(fields: dict[str, str] | None) -> str:
    return msgspec.json.encode(fields, order="sorted").decode() if fields else "<none>"


def _plugin(spec: dict[str, Any], name: str) -> str:
    arguments = (spec.get("plugins") or {}).get(name) or ()
    return f"[{' '.join(arguments)}]"


def _time(text: str | None) -> str:
    if not text:
        return _NO_TIME
    moment = datetime.fromisoformat(text)
    return f"{moment:%Y-%m-%d %H:%M:%S +0000 UTC}"
