"""Copies of data sets on nodes, materialized from ``cluster.data``, and lists of them.

An account that may list nodes reads all copies. Another account reads only the copies of data sets
that the jobs of a namespace name, since a URI can disclose what another tenant works on.
"""

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from stromboli.shared import decoding
from stromboli.shared.api import batch, meta
from stromboli.shared.api.views.data_copies import DataSetCopies, DataSetPage, NodeCopy
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages.data import DataCopy, DataObserved


class _Spec(meta.Part, frozen=True, kw_only=True):
    data_sets: tuple[batch.DataSet, ...] = ()


class _Job(meta.Part, frozen=True, kw_only=True):
    """The part of a job that names its data sets."""

    spec: _Spec = _Spec()


_JOB = decoding.decoder_of(_Job)


class CopyFilter(msgspec.Struct, frozen=True):
    """Which data sets are listed; empty fields match all. ``uri`` is a prefix. With ``node``, only
    the copies on this node are listed.
    """

    key: str = ""
    uri: str = ""
    node: str = ""


class DataCopies:
    """The newest report of each node's cache, by content key."""

    def __init__(self) -> None:
        self._reports: dict[str, DataObserved] = {}
        self._copies: dict[str, dict[str, DataCopy]] = {}
        """Content key -> node -> its copy."""

    def put(self, node: str, report: DataObserved | None) -> None:
        """Replace the report of a node; None removes it. O(copies of the node)."""
        previous = self._reports.pop(node, None)
        for copy in previous.copies if previous is not None else ():
            there = self._copies.get(copy.key, {})
            there.pop(node, None)
            if not there:
                self._copies.pop(copy.key, None)
        if report is not None:
            self._reports[node] = report
            for copy in report.copies:
                self._copies.setdefault(copy.key, {})[node] = copy

    def clear(self) -> None:
        """Drop all reports."""
        self._reports.clear()
        self._copies.clear()

    def page(
        self,
        wanted: CopyFilter,
        named: Mapping[str, data_sets.DataSetRequest] | None = None,
        *,
        limit: int | None = None,
        after: str = "",
    ) -> DataSetPage:
        """Data sets in the order of their keys, after the key ``after``.

        ``named``: only these data sets, including those without copies. O(data sets + their
        copies).
        """
        keys = sorted(self._copies if named is None else named)
        rest = keys[bisect.bisect_right(keys, after) :]
        copies = self._matching(rest, wanted, named or {})
        if limit is None:
            return DataSetPage(items=tuple(copies))
        items = tuple(itertools.islice(copies, limit))
        has_more = next(copies, None) is not None
        return DataSetPage(items=items, continue_=items[-1].key if has_more else "")

    def _matching(
        self,
        keys: Iterable[str],
        wanted: CopyFilter,
        named: Mapping[str, data_sets.DataSetRequest],
    ) -> Iterator[DataSetCopies]:
        for key in keys:
            if wanted.key not in ("", key):
                continue
            copies = self._data_set(key, named.get(key))
            if not copies.uri.startswith(wanted.uri):
                continue
            if wanted.node:
                here = tuple(copy for copy in copies.nodes if copy.node == wanted.node)
                if not here:
                    continue
                copies = msgspec.structs.replace(copies, nodes=here)
            yield copies

    def _data_set(self, key: str, named: data_sets.DataSetRequest | None) -> DataSetCopies:
        there = self._copies.get(key, {})
        complete = [copy for copy in there.values() if copy.state == "Complete"]
        known = complete or list(there.values())
        digests = {copy.digest for copy in known} or {named.digest if named is not None else ""}
        size = max((copy.bytes for copy in known), default=0)
        return DataSetCopies(
            key=key,
            uri=named.uri if named is not None else next(iter(there.values())).uri,
            digest=digests.pop() if len(digests) == 1 else "",
            bytes=size or (named.bytes if named is not None else 0),
            nodes=tuple(self._node_copy(node, there[node]) for node in sorted(there)),
        )

    def _node_copy(self, node: str, copy: DataCopy) -> NodeCopy:
        report = self._reports[node]
        return NodeCopy(
            node=node,
            state=copy.state,
            bytes=copy.bytes,
            fetched_bytes=copy.fetched_bytes,
            digest=copy.digest,
            in_use=copy.in_use,
            last_used_at=copy.last_used_at,
            reason=copy.reason,
            observed_at=report.observed_at,
            silent_since=report.silent_since,
        )


def named_by(jobs: Iterable[bytes | msgspec.Raw]) -> dict[str, data_sets.DataSetRequest]:
    """Content key -> data set, for the data sets that these jobs name by URI and that caches on
    nodes can hold. A job or a data set that cannot be read is ignored. Of requests with the same
    key, the largest size counts.
    """
    requests: dict[str, data_sets.DataSetRequest] = {}
    for raw in jobs:
        for request in _requests(raw):
            known = requests.get(request.key)
            if request.key and (known is None or known.bytes < request.bytes):
                requests[request.key] = request
    return requests


def _requests(job: bytes | msgspec.Raw) -> Iterator[data_sets.DataSetRequest]:
    try:
        named = decoding.decode(_JOB, job).spec.data_sets
    except msgspec.DecodeError:
        return
    for data_set in named:
        if data_set.uri:
            try:
                yield data_sets.request_of(data_set)
            except ValueError:  # stored without admission
                continue
