"""Data sets of pods, and the reports of the caches on nodes."""

from typing import Any

from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.api.views.data_copies import CopyState
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import data
from stromboli.testkit import builders

GB = 10**9


def uri(name: str) -> str:
    return f"s3://bucket/{name}"


def key(name: str) -> str:
    return data_sets.content_key(uri(name), "")


def request(name: str, size: int = 10 * GB, **fields: Any) -> data_sets.DataSetRequest:
    """A request for a data set in the bucket; ``fields`` as in ``spec.dataSets``."""
    data_set = batch.DataSet(name=name, **{"uri": uri(name), "size": size or "", **fields})
    return data_sets.request_of(data_set)


def notes(*requests: data_sets.DataSetRequest) -> dict[str, str]:
    """The annotations of a pod with these data sets."""
    return {keys.DATA_SETS: data_sets.annotation(requests)}


def copy(name: str, state: CopyState = "Complete", **fields: Any) -> data.DataCopy:
    """A copy of a data set, by default complete, 10 GB and not in use."""
    size = fields.pop("bytes", 10 * GB)
    return data.DataCopy(key=key(name), uri=uri(name), bytes=size, state=state, **fields)


def report(node: str, *copies: data.DataCopy, **fields: Any) -> data.DataObserved:
    """The report of a node's cache, by default with a capacity of 100 GB."""
    known = {"capacity_bytes": 100 * GB, **fields}
    return data.DataObserved(
        node=node,
        observed_at=builders.NOON,
        copies=copies,
        used_bytes=sum(each.bytes for each in copies),
        **known,
    )
