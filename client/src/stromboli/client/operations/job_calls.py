"""Requests about changes and expected starts of jobs, as ``Call`` values. Sends nothing."""

from collections.abc import Mapping

import msgspec

from stromboli.client.operations import calls
from stromboli.client.responses import Applied
from stromboli.shared import decoding
from stromboli.shared.api.views.expected_start import ExpectedStarts
from stromboli.shared.api.views.what_if import JobIf, WhatIf

WHAT_IF_WORK_S = 60.0
"""Maximum seconds for which a server simulates for one answer."""


def change(
    namespace: str,
    name: str,
    replicas: Mapping[str, int] | None = None,
    min_available: int | None = None,
    priority_class: str | None = None,
    time_limit_s: int | None = None,
    queue: str | None = None,
    cancelled_indexes: str | None = None,
) -> calls.Call[Applied]:
    """Set replicas of tasks by name, minAvailable, the PriorityClass, the time limit and the queue
    of a job in one patch; None leaves a field unchanged. The queue can change while no pod of the
    job has a node. ``cancelled_indexes``: indexes of an array (``3,7-9``) that must not run; their
    running pods are deleted. The time limit also becomes the job's expected run time, with which
    the scheduler plans."""
    body: dict[str, object] = {"replicas": dict(replicas)} if replicas else {}
    body |= {} if min_available is None else {"minAvailable": min_available}
    body |= {} if priority_class is None else {"priorityClassName": priority_class}
    body |= {} if queue is None else {"queue": queue}
    body |= {} if cancelled_indexes is None else {"cancelledIndexes": cancelled_indexes}
    if time_limit_s is not None:
        estimate = f"{time_limit_s}s"
        body |= {"activeDeadlineSeconds": time_limit_s, "runningEstimate": estimate}
    return calls.Call(
        method="PATCH",
        path=calls.job(namespace, name).path,
        what=f"job {namespace}/{name}",
        read=decoding.decoder_of(Applied).decode,
        body=msgspec.json.encode(body),
    )


def expected_starts(namespace: str = "") -> calls.Call[ExpectedStarts]:
    """When the pending jobs of a namespace, or of all, are expected to start."""
    within = f"/namespaces/{calls.path_segment(namespace)}" if namespace else ""
    return calls.Call(
        method="GET",
        path=f"/v1{within}/expected-starts",
        what="expected starts",
        read=decoding.decoder_of(ExpectedStarts).decode,
        is_collection=True,
    )


def what_if(namespace: str, name: str, change: JobIf) -> calls.Call[WhatIf]:
    """When a pending job would start if it, or the cluster, were different."""
    return calls.Call(
        method="POST",
        path=f"{calls.job(namespace, name).path}/what-if",
        what=f"job {namespace}/{name}",
        read=decoding.decoder_of(WhatIf).decode,
        body=msgspec.json.encode(change),
        work_s=WHAT_IF_WORK_S,
    )
