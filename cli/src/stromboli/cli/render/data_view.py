"""Data sets in the caches of nodes as rows, and the data sets that pods wait for. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import get_args

from stromboli.cli.render import output, pod_status
from stromboli.shared import keys
from stromboli.shared.api.views.data_copies import CopyState, DataSetCopies, NodeCopy
from stromboli.shared.data_cache import policy
from stromboli.shared.jobspec import data_sets

HEADERS = (
    "URI", "SIZE", "COMPLETE", "FETCHING", "WAITING", "FAILED", "IN USE", "KEY", "REASON",
)  # fmt: skip
_COPY_HEADERS = ("STATE", "SIZE", "FETCHED", "IN USE", "LAST USED")
ON_NODE_HEADERS = ("URI", *_COPY_HEADERS, "KEY", "REASON")
NODE_HEADERS = ("NODE", *_COPY_HEADERS, "REASON")
LINES_SHOWN = 8
"""Maximum lines about data that a job's pods wait for."""
_UNITS = ((" bytes", "B"), (" ", ""))


def row(copies: DataSetCopies, now: datetime) -> tuple[str, ...]:
    """A data set as a row under ``HEADERS``: the number of its copies in each state."""
    states = Counter(copy.state for copy in copies.nodes)
    counts = (states[state] for state in ("Complete", "Fetching", "Waiting", "Failed"))
    in_use = sum(copy.in_use for copy in copies.nodes)
    reasons = (f"{copy.node}: {text}" for copy in copies.nodes if (text := _reason(copy, now)))
    numbers = (*counts, in_use)
    return (copies.uri, _size(copies.bytes), *map(str, numbers), copies.key, next(reasons, ""))


def on_node_row(copies: DataSetCopies, copy: NodeCopy, now: datetime) -> tuple[str, ...]:
    """A copy as a row under ``ON_NODE_HEADERS``."""
    return (copies.uri, *_cells(copy, now), copies.key, _reason(copy, now))


def node_rows(copies: DataSetCopies, now: datetime) -> list[tuple[str, ...]]:
    """The copies of a data set under ``NODE_HEADERS``."""
    return [(copy.node, *_cells(copy, now), _reason(copy, now)) for copy in copies.nodes]


def facts(copies: DataSetCopies) -> list[str]:
    """A data set, a fact per line."""
    states = Counter(copy.state for copy in copies.nodes)
    counts = [f"{states[it]} {it.lower()}" for it in reversed(get_args(CopyState)) if states[it]]
    return output.facts(
        ("data set", copies.uri),
        ("key", copies.key),
        ("digest", copies.digest or "unknown"),
        ("size", policy.text_of_bytes(copies.bytes) if copies.bytes else "unknown"),
        ("copies", ", ".join(counts) or "none"),
    )


def _cells(copy: NodeCopy, now: datetime) -> tuple[str, ...]:
    used = output.age(copy.last_used_at, now) if copy.last_used_at is not None else ""
    in_use = "yes" if copy.in_use else "no"
    return (copy.state, _size(copy.bytes), _size(copy.fetched_bytes), in_use, used)


def _size(count: int) -> str:
    """Bytes in one word, ``12.0GB``, so that every row has the same number of fields; empty for
    0."""
    text = policy.text_of_bytes(count) if count else ""
    for unit, short in _UNITS:
        text = text.replace(unit, short)
    return text


def _reason(copy: NodeCopy, now: datetime) -> str:
    parts = [copy.reason]
    if copy.silent_since is not None:
        parts.append(f"the cache has not reported for {output.age(copy.silent_since, now)}")
    return "; ".join(filter(None, parts))


# --- pods that wait for their data -----------------------------------------------------------


def waiting_for_data(pods: Sequence[pod_status.Pod]) -> list[pod_status.Pod]:
    """The bound pods that use data sets and whose containers have not started, by node and name."""
    waiting_pods = [pod for pod in pods if _is_starting(pod) and _keys(pod)]
    return sorted(waiting_pods, key=lambda pod: (pod.spec.node_name, pod.metadata.name))


def _is_starting(pod: pod_status.Pod) -> bool:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return (
        bool(pod.spec.node_name)
        and pod.status.phase in ("", "Pending")
        and all(one.state.running is None and one.state.terminated is None for one in statuses)
    )


def _keys(pod: pod_status.Pod) -> list[str]:
    """The content keys of a pod's data sets; empty if they cannot be read."""
    try:
        requests = data_sets.requests_of(pod.metadata.annotations)
    except ValueError:
        return []
    return [request.key for request in requests if request.key]


def waiting_lines(
    pods: Sequence[pod_status.Pod], known: Mapping[str, DataSetCopies], now: datetime
) -> tuple[str, ...]:
    """Lines about data that these pods' nodes have to fetch: the estimate of the scheduler at the
    bind, and the state of each copy that is not complete. ``known``: content key -> data set,
    without data sets that could not be read.
    """
    lines = list(dict.fromkeys(line for pod in pods for line in _pod_lines(pod, known, now)))
    more = len(lines) - LINES_SHOWN
    return (*lines[:LINES_SHOWN], f"and {more} more") if more > 0 else tuple(lines)


def _pod_lines(
    pod: pod_status.Pod, known: Mapping[str, DataSetCopies], now: datetime
) -> Iterator[str]:
    node, wanted = pod.spec.node_name, _keys(pod)
    copies = {
        key: next((copy for copy in known[key].nodes if copy.node == node), None)
        for key in wanted
        if key in known
    }
    missing = [key for key, it in copies.items() if it is None or it.state != "Complete"]
    estimate = pod.metadata.annotation(keys.DATA_TO_FETCH)
    if estimate and (missing or len(copies) < len(wanted)):
        yield f"{node}: {estimate}, as of the bind"
    for key in missing:
        yield f"{node}: {known[key].uri}: {_progress(copies[key], now)}"


def _progress(copy: NodeCopy | None, now: datetime) -> str:
    if copy is None:
        return "the node's cache has not begun to fetch it"
    text = copy.state.lower()
    if copy.state == "Fetching" and copy.bytes:
        fetched, size = map(policy.text_of_bytes, (copy.fetched_bytes, copy.bytes))
        text += f", {fetched} of {size}"
    return ": ".join(filter(None, (text, _reason(copy, now))))
