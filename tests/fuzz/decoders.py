"""Every decoder of what others send, as a function of bytes that returns the outcome in a word and
raises only what no decoder may raise."""

import contextlib
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stromboli.admission.core import admission_review, review_records, submissions
from stromboli.admission.rest import bulk
from stromboli.cli import manifests
from stromboli.cli.errors import CommandError
from stromboli.monitor.core import reports
from stromboli.shared import decoding, envelope, errors, snapshot, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import fencing
from stromboli.shared.bus.kafka import reader
from stromboli.shared.formats import cpu_lists, cron, documents, durations, indexes, units
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import patch, review
from stromboli.shared.messages import base
from stromboli.testkit import poison_records
from stromboli.testkit.admission_cases import rules as admission_cases
from tests.fuzz import mutations
from tests.fuzz.engine import Mutate

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "shared/tests/golden"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AGE = timedelta(seconds=900)
POLICY = review.AdmissionPolicy(
    scheduler_names=("volcano", "stromboli"), plugins=job_plugins.load(), max_queue_depth=5
)
KNOWN = review.ClusterContext(
    queues={
        each["metadata"]["name"]: kinds.QUEUES.decode(msgspec.json.encode(each))
        for each in admission_cases.EXISTING_OBJECTS
    }
)
TOPICS = {topic.name: topic for topic in topics.ALL}


class Target(NamedTuple):
    """A decoder, valid inputs, and how they are changed."""

    corpus: Sequence[bytes]
    call: Callable[[bytes], str]
    mutate: Mutate = mutations.of_json
    group: str = "bodies"


class KafkaRecord(NamedTuple):
    """A record as aiokafka returns it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def _golden() -> dict[str, list[bytes]]:
    """Topic -> records as JSON of key, headers and value."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(GOLDEN.glob("*.txt")):
        place, headers, value = path.read_bytes().split(b"\n\n", 2)
        where, written = (
            dict(line.split(": ", 1) for line in part.decode().splitlines())
            for part in (place, headers)
        )
        packed = {"key": where["key"], "headers": written, "value": json.loads(value or b"null")}
        found.setdefault(where["topic"], []).append(json.dumps(packed).encode())
    return found


def _submissions() -> list[bytes]:
    found = []
    for changes, value in poison_records.SUBMISSIONS.values():
        if len(value) < 2_000:
            headers, text = poison_records.SUBMISSION | changes, value.decode("latin-1")
            packed = {"key": "k", "headers": headers, "value": text}
            found.append(json.dumps(packed).encode())
    return found


def record_of(topic: topics.Topic, data: bytes) -> envelope.Record:
    """A record from an input: from JSON of key, headers and value if it is that, else the bytes are
    the value, the key and a header."""
    types = sorted(base.type_name(each) for each in topic.messages)
    key, value = data[:40], data
    headers = [("ce_type", types[len(data) % len(types)].encode()), ("ce_time", data[:60])]
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        packed: dict[str, Any] = json.loads(data)
        headers = [
            (str(name), str(text).encode("latin-1", "replace"))
            for name, text in packed["headers"].items()
        ]
        given = packed["value"]
        value = given.encode("latin-1") if isinstance(given, str) else json.dumps(given).encode()
        key = str(packed["key"]).encode("utf-8", "surrogatepass")
    read: Any = KafkaRecord(7, key, value, headers)
    return reader.record_of(topic, read)


def of_topic(topic: topics.Topic) -> Callable[[bytes], str]:
    """Everything that readers do with a record before they decode its message."""

    def call(data: bytes) -> str:
        record = record_of(topic, data)
        fencing.Fence("default").split([record])
        snapshot.Snapshot().apply(record)
        sync = snapshot.Sync()
        sync.apply(record, 0.0)
        sync.missing((kinds.QUEUES, kinds.PODS), 0.0, 60.0, {})
        sync.competitors(("volcano",))
        with contextlib.suppress(errors.UndecodableError):
            _ = record.time
        try:
            message = envelope.decode(record)
        except errors.UndecodableError:
            return "refused"
        if message is not None:
            base.encode(message)
        return "read"

    return call


def submission(data: bytes) -> str:
    """A submission over Kafka."""
    found = submissions.read(record_of(topics.SUBMISSIONS, data), NOW, AGE)
    return str(found.status) if isinstance(found, submissions.RejectedSubmission) else "read"


def webhook(data: bytes) -> str:
    """What an API server posts."""
    try:
        admission_review.decode_request(data)
    except ValueError:
        return "refused"
    return "read"


def kubernetes_object(data: bytes) -> str:
    """Any object of any kind."""
    refused = 0
    for kind in kinds.BY_NAME.values():
        try:
            kind.decode(data)
            kinds.metadata_of(data)
        except msgspec.DecodeError:
            refused += 1
    kinds.name_of(data)
    return "refused" if refused == len(kinds.BY_NAME) else "read"


def rules(data: bytes) -> str:
    """Defaults and rules of every kind, of what is a JSON object."""
    try:
        document = decoding.from_json(data, dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "no object"
    kind = kinds.BY_NAME.get((str(document.get("apiVersion")), str(document.get("kind"))))
    if kind is None:
        return "no kind"
    additions = review.default_patch(kind, document, POLICY, "", KNOWN)
    whole = patch.applied(document, additions)
    violations = review.violations(kind, "CREATE", whole, None, KNOWN, POLICY)
    review_records.record(kind.kind, whole, "CREATE", "ada", "rest", violations)
    return "refused" if violations else "accepted"


def bulk_line(data: bytes) -> str:
    """Which line of a bulk is a job."""
    return str(bulk._is_job(data))


def report(data: bytes) -> str:
    """What an agent reports of its node."""
    try:
        reports.read(data)
    except msgspec.DecodeError:
        return "refused"
    return "read"


def yaml_text(data: bytes) -> str:
    """YAML documents, with the lines of their parts."""
    try:
        for _, tree in documents.read(data.decode("utf-8", "replace")):
            tree.line_at("spec.tasks[0].template.spec.containers[0].name")
    except documents.DocumentError:
        return "refused"
    return "read"


def manifest(data: bytes) -> str:
    """A manifest file as ``strom apply`` reads it."""
    try:
        manifests.parse(data.decode("utf-8", "replace"), "m.yaml")
        manifests.parse(data.decode("utf-8", "replace"), "m.json")
    except CommandError:
        return "refused"
    return "read"


def texts(data: bytes) -> str:
    """The small languages inside of objects: quantities, durations, schedules, sets of indexes."""
    text = data.decode("utf-8", "replace")
    read = 0
    for parse in (units.quantity, durations.duration, cpu_lists.parsed, indexes.count):
        try:
            parse(text)
            read += 1
        except ValueError:
            pass
    cron.problem(text)
    with contextlib.suppress(ValueError):
        cron.Schedule(text, None, NOW)
    return f"{read} read"


def all_targets() -> dict[str, Target]:
    """Name -> target."""
    golden = _golden()
    found = {
        f"topic {name}": Target(golden.get(name) or [b"{}"], of_topic(topic), group="topics")
        for name, topic in TOPICS.items()
    }
    objects = [msgspec.json.encode(case.document) for case in admission_cases.CASES]
    requested = [
        msgspec.json.encode(
            {
                "request": {
                    "uid": "u",
                    "kind": {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"},
                    "operation": "CREATE",
                    "object": json.loads(each),
                }
            }
        )
        for each in objects[:40]
    ]
    examples = [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.yaml"))]
    words = [b"100m", b"1Gi", b"1h30m", b"0-3,8", b"0-10:2", b"*/5 2 * * *", b"@every 1h", b"1e3"]
    found |= {
        "submission": Target(_submissions(), submission, group="topics"),
        "webhook body": Target(requested, webhook),
        "object": Target(objects, kubernetes_object),
        "rules": Target(objects, rules),
        "bulk line": Target(objects, bulk_line),
        "agent report": Target([b'{"cpus":[],"gpus":[]}', b"{}"], report),
        "YAML": Target(examples, yaml_text, mutations.of_bytes, "yaml"),
        "manifest": Target([*examples, *objects[:20]], manifest, mutations.of_bytes, "yaml"),
        "texts": Target(words, texts, mutations.of_bytes),
    }
    return found
