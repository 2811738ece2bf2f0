"""REST route of what-if: the expected start of a pending job if the job or the cluster were
different."""

import msgspec
from litestar import post
from litestar.params import FromPath, JSONBody
from litestar.types import ControllerRouterHandler

from stromboli.admission import problems
from stromboli.admission.core import what_if
from stromboli.admission.rest import explanations
from stromboli.admission.rest.authorization import needs, one
from stromboli.admission.rest.creation import Asked
from stromboli.admission.review.service import AdmissionService
from stromboli.shared.api import batch, kinds
from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.api.views.what_if import JobIf, WhatIf
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.messages.admission import Violation

_NOT_RELEASED = (
    "the job's tasks are released one after another (dependsOn, array), so the sizes and requests "
    "of its gang depend on the pods that run at that time"
)


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """The REST routes of what-if."""

    @post(
        "/v1/namespaces/{namespace:str}/jobs/{name:str}/what-if",
        status_code=200,
        opt=needs(one("get", kinds.JOBS)),
        summary="When a pending job would start if it, or the cluster, were different",
    )
    async def what_if_route(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        data: JSONBody[JobIf],
    ) -> WhatIf:
        raw = await cluster.get(kinds.JOBS, namespace, name)
        job = kinds.JOBS.decode(raw)
        known = await explanations.of(admission, job, request.user)
        document = msgspec.json.decode(raw)
        named = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.kind, **document}
        changed = what_if.changed_job(named, data)
        if isinstance(changed, Violation):
            raise problems.invalid(changed.path, changed.reason, changed.expected)
        if data.changes_job:
            await admission.reject_change(named, changed, request.user, is_new=data.is_new)
        cannot_tell = _not_simulated(known, job, data)
        if cannot_tell:
            return WhatIf(job=known.job, at=admission.now(), cannot_tell=cannot_tell)
        return await _answer(admission, known, job, changed, data, request.user.name)

    return [what_if_route]


def _not_simulated(known: explanations.Explanation, job: batch.Job, change: JobIf) -> str:
    """Why a simulation would have no answer; empty if it may have one."""
    if known.held:
        return f"something other than the scheduler holds the job: {known.held.strip()}"
    if known.phase not in ("Pending", "Running"):
        return f"the job is not pending: its phase is {known.phase}"
    if known.explained is None:
        return "the job is not pending: the scheduler places its pods now, or has placed them"
    if what_if.releases_tasks(job) and (change.sizes_change or change.gpus):
        return _NOT_RELEASED
    return ""


async def _answer(
    admission: AdmissionService,
    known: explanations.Explanation,
    job: batch.Job,
    changed: Document,
    change: JobIf,
    principal: str,
) -> WhatIf:
    priorities = admission.priorities()
    other = kinds.JOBS.decode(msgspec.json.encode(changed))
    try:
        present = what_if.gang_of(job, priorities)
        wanted = what_if.gang_of(other, priorities) if change.changes_job else None
    except (msgspec.DecodeError, ValueError) as error:
        why = f"a pod template of the job cannot be read: {error}"
        return WhatIf(job=known.job, at=admission.now(), cannot_tell=why)
    what_if_answered = await admission.what_ifs.ask(
        known.pod_group,
        present,
        wanted,
        is_new=change.is_new,
        sizes_change=change.sizes_change,
        nodes=change.nodes,
        principal=principal,
    )

    def start(each: messages.ExpectedStart | None) -> ExpectedStart | None:
        if each is None:
            return None
        return ExpectedStart(
            pod_group=each.pod_group,
            answer=each.answer,
            at=what_if_answered.at,
            draws=what_if_answered.draws,
            p10=each.p10,
            p50=each.p50,
            p90=each.p90,
        )

    return WhatIf(
        job=known.job,
        at=what_if_answered.at,
        present=start(what_if_answered.present),
        changed=start(what_if_answered.changed),
        reason=what_if_answered.reason,
        notes=what_if_answered.notes,
        cannot_tell=what_if_answered.cannot_tell,
    )
