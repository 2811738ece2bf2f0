"""Changes of the cluster: a record of a snapshot topic against the last known facts of its object.

Pure. The facts are the fields whose changes explain decisions:

- node: labels, taints, resources and conditions; its hardware: GPUs with their errors
- queue: spec and state
- priority class: value
- configuration of the scheduler: digest

Changes of other fields, such as heartbeats of nodes, are not recorded.

A snapshot topic keeps the last record of each object. If the history is down for longer than the
log keeps earlier records, all changes of an object in that time become one change.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from stromboli.history.core import placements
from stromboli.history.core.rows import ChangeRow, ObjectRow, Rows, micros, text, whole
from stromboli.shared import decoding, envelope, topics
from stromboli.shared.api import kinds, meta
from stromboli.shared.api.views import accounting
from stromboli.shared.messages import base, cluster, node_topology, scheduling

KINDS: Mapping[topics.Topic, kinds.Kind[Any]] = {
    topics.NODES: kinds.NODES,
    topics.QUEUES: kinds.QUEUES,
    topics.PRIORITY_CLASSES: kinds.PRIORITY_CLASSES,
}
"""The snapshot topics whose changes are recorded."""
CONFIGURATION = "Configuration"
"""The kind in changes of a service's configuration."""
HARDWARE = "Hardware"
"""The kind in changes of a node's GPUs, as its agent reports them."""
HEALTHY = "healthy"
"""The value of a GPU without errors."""
SCHEDULER = "scheduler"
SESSIONS = base.type_name(scheduling.SessionRecorded)
CREATED, CHANGED, DELETED = accounting.ACTIONS
MOST_FIELDS = 100
"""Maximum fields of one change; further fields are left out."""
MOST_CHARACTERS = 300
"""Maximum characters of a field's value; the rest is cut off."""


class ObjectSeen(msgspec.Struct, frozen=True):
    """The state of an object in a record; ``facts`` is None if it was deleted. ``created_at``: None
    if it is not known. ``expected``: the facts that are not recorded as changes when the object is
    first seen; None: all of them. ``held``: what the pods of a node hold; None for other
    objects."""

    kind: str
    name: str
    at: datetime
    uid: str = ""
    version: int = 0
    created_at: datetime | None = None
    facts: dict[str, str] | None = None
    expected: dict[str, str] | None = None
    held: placements.Placements | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The key of the object's row."""
        return self.kind, text(self.name)


class _Observed(msgspec.Struct, frozen=True):
    metadata: meta.ObjectMeta


class _Configured(msgspec.Struct, frozen=True):
    """The part of the record of a session that the history reads: these records are large."""

    configuration: str = ""


class _Gpu(msgspec.Struct, frozen=True):
    uuid: str
    problems: tuple[str, ...] = ()


class _Hardware(msgspec.Struct, frozen=True, rename="camel"):
    gpus: tuple[_Gpu, ...] = ()
    numa_nodes: tuple[node_topology.NumaNode, ...] = ()
    exclusive_allocations: tuple[node_topology.ExclusiveAllocation, ...] = ()


class _HardwareObserved(msgspec.Struct, frozen=True):
    """The part of the report of a node's agent that the history reads."""

    at: decoding.Instant
    topology: _Hardware


_HARDWARE = decoding.decoder_of(_HardwareObserved)
_OBSERVED = decoding.decoder_of(_Observed)
_DOCUMENT = decoding.decoder_of(dict[str, Any])
_CONFIGURED = decoding.decoder_of(_Configured)
_FACTS = decoding.decoder_of(dict[str, str])


def decode(record: envelope.Record) -> ObjectSeen | None:
    """The state in a record of ``KINDS``, or of a session; None for an object that the monitor
    could not read. Raises UndecodableError."""
    kind = KINDS.get(record.topic)
    try:
        if record.topic == topics.TOPOLOGY:
            return None if record.value is None else _hardware(record.key, record.value)
        if kind is None:
            configured = decoding.decode(_CONFIGURED, record.value or b"{}")
            facts = {"digest": configured.configuration}
            at = record.time
            return ObjectSeen(CONFIGURATION, SCHEDULER, at, "", micros(at), None, facts)
        if record.value is None:
            return ObjectSeen(kind.kind, record.key, record.time)
        if record.type == cluster.UNREADABLE:
            return None
        metadata = decoding.decode(_OBSERVED, record.value).metadata
        document = decoding.decode(_DOCUMENT, record.value)
    except msgspec.DecodeError as error:
        raise record.undecodable(str(error)) from None
    return ObjectSeen(
        kind.kind,
        metadata.name,
        record.time,
        text(metadata.uid),
        whole(metadata.version),
        metadata.creation_timestamp,
        facts_of(kind.kind, document),
    )


def _hardware(node: str, value: bytes) -> ObjectSeen:
    """The GPUs of a node, and what its pods hold. The deletion of the node is a change of the
    node."""
    hardware_observed = decoding.decode(_HARDWARE, value)
    topology = hardware_observed.topology
    gpus = {text(f"gpus.{it.uuid}"): it.problems for it in topology.gpus}
    healthy = dict.fromkeys(gpus, HEALTHY)
    errors = {
        name: text("; ".join(problems))[:MOST_CHARACTERS]
        for name, problems in gpus.items()
        if problems
    }
    version = micros(hardware_observed.at)
    pod_placements = placements.of(topology.numa_nodes, topology.exclusive_allocations)
    return ObjectSeen(
        HARDWARE,
        text(node),
        hardware_observed.at,
        "",
        version,
        None,
        healthy | errors,
        healthy,
        pod_placements,
    )


def facts_of(kind: str, document: Mapping[str, Any]) -> dict[str, str]:
    """The facts of an object by field, such as ``spec.weight``."""
    metadata, spec, status = (
        section if isinstance(section := document.get(part), dict) else {}
        for part in ("metadata", "spec", "status")
    )
    chosen: dict[str, Any]
    if kind == kinds.NODES.kind:
        chosen = {
            "labels": metadata.get("labels"),
            "unschedulable": spec.get("unschedulable") or None,
            "taints": {_taint(it): it.get("value", "") for it in _objects(spec.get("taints"))},
            "allocatable": status.get("allocatable"),
            "conditions": {
                str(it.get("type")): it.get("status") for it in _objects(status.get("conditions"))
            },
        }
    elif kind == kinds.QUEUES.kind:
        chosen = {"spec": spec, "state": status.get("state")}
    else:
        names = ("value", "globalDefault", "preemptionPolicy")
        chosen = {name: document.get(name) for name in names}
    return dict(sorted(_leaves("", chosen)))


def apply(rows: Rows, object_seen: ObjectSeen) -> None:
    """Adds the change from an object's last known state, if the rows have one, to a new state."""
    before = rows.objects.get(object_seen.key)
    if object_seen.facts is None:
        if before is not None and not before.is_deleted:
            rows.objects[object_seen.key] = msgspec.structs.replace(before, is_deleted=1)
            rows.changes.append(
                ChangeRow(
                    *object_seen.key, before.uid, before.version, DELETED, micros(object_seen.at)
                )
            )
        return
    created_at = micros(object_seen.created_at or object_seen.at)
    if before is not None and not _is_newer(object_seen, created_at, before):
        return
    if before is None or before.uid != object_seen.uid:
        is_new, known = (
            True,
            object_seen.facts if object_seen.expected is None else object_seen.expected,
        )
    else:
        is_new, known = False, _FACTS.decode(before.facts)
    fields = changed_fields(known, object_seen.facts)
    if not fields and not (is_new and object_seen.facts):
        return
    facts = text(msgspec.json.encode(object_seen.facts, order="deterministic").decode())
    rows.objects[object_seen.key] = ObjectRow(
        *object_seen.key, object_seen.uid, object_seen.version, created_at, 0, facts
    )
    rows.changes.append(
        ChangeRow(
            *object_seen.key,
            object_seen.uid,
            object_seen.version,
            CREATED if is_new else CHANGED,
            created_at if is_new else micros(object_seen.at),
            text(msgspec.json.encode(fields).decode()),
        )
    )


def changed_fields(
    before: Mapping[str, str], after: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """The fields that differ, in the order of their names; an absent value is empty."""
    names = sorted(before.keys() | after.keys())
    pairs = ((name, before.get(name, ""), after.get(name, "")) for name in names)
    return [it for it in pairs if it[1] != it[2]][:MOST_FIELDS]


def _is_newer(object_seen: ObjectSeen, created_at: int, before: ObjectRow) -> bool:
    """Whether a state is newer than the last known one. A deleted object does not return: a new
    object of the same name has another uid."""
    if object_seen.uid == before.uid:
        return object_seen.version > before.version and not before.is_deleted
    return created_at >= before.created_at


def _leaves(path: str, value: Any) -> list[tuple[str, str]]:
    """The values of a document by path; those without a value are left out."""
    if isinstance(value, dict):
        return [leaf for key, it in value.items() for leaf in _leaves(_below(path, key), it)]
    if value is None:
        return []
    value_text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return [(text(path), text(value_text)[:MOST_CHARACTERS])]


def _below(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []


def _taint(taint: Mapping[str, Any]) -> str:
    return f"{taint.get('key')}:{taint.get('effect')}"
