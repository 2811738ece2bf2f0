"""REST routes of jobs: create, read, delete, and commands."""

from collections.abc import Callable
from typing import Annotated

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, JSONBody
from litestar.types import ControllerRouterHandler

from stromboli.admission import idempotency, problems
from stromboli.admission.core import job_change, scaling
from stromboli.admission.rest import explanations
from stromboli.admission.rest.authorization import many, needs, one
from stromboli.admission.rest.creation import (
    Asked,
    Document,
    Key,
    ObjectCreator,
    answer_of,
    response_of,
)
from stromboli.admission.rest.pagination import Continue, Items, Limit, list_page
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.review.submitted_objects import Applied
from stromboli.shared import decoding, errors, keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.jobspec.validation.policies import BY_COMMAND
from stromboli.shared.messages.admission import Violation

JOBS = "/v1/namespaces/{namespace:str}/jobs"
JOB = JOBS + "/{name:str}"
READ_JOB = one("get", kinds.JOBS)
LISTED = needs(many("list", kinds.JOBS))
ENDED = ("Completed", "Failed", "Terminated")
COMMANDED = needs(READ_JOB, many("create", kinds.COMMANDS))
MAX_ATTEMPTS = 3
"""Maximum number of attempts of a change; each further attempt follows a conflict with another
change."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class CommandRequest(msgspec.Struct, frozen=True):
    """A command for a job, such as ``AbortJob``, ``ResumeJob`` or ``RestartJob``."""

    action: str


class ScaleRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The desired replicas of a task. ``task`` may be omitted if the job has only one;
    ``minAvailable`` if a gang that needs all its pods should continue to need all.
    """

    replicas: Count
    task: str = ""
    min_available: Count | None = None


class ChangeRequest(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """The fields of a job that can change after its creation; omitted fields keep their values.
    ``replicas``: task -> its number of pods. Without ``minAvailable`` a gang that needs all its
    pods continues to need all. ``queue`` can change while no pod of the job has a node.
    Indexes of an array in ``cancelledIndexes`` end, and do not run again.
    ``activeDeadlineSeconds`` counts from the first start of the job's pods.
    """

    replicas: dict[str, Count] = {}
    min_available: Count | None = None
    queue: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    priority_class_name: str | None = None
    active_deadline_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    running_estimate: str | None = None
    cancelled_indexes: str | None = None


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster, creator: ObjectCreator
) -> list[ControllerRouterHandler]:
    """The REST routes of jobs."""

    async def commanded(
        request: Asked, key: str | None, namespace: str, name: str, action: str
    ) -> Response[msgspec.Raw]:
        requested = await idempotency.request_digest(request, request.user, key)

        async def work() -> idempotency.Answer:
            target = kinds.JOBS.decode(await cluster.get(kinds.JOBS, namespace, name))
            reject_ended(target, action)
            command = command_of(name, namespace, target.metadata.uid, action)
            marks = (requested,) if requested else ()
            (applied_command,) = await admission.submit(
                [command], request.user, only_new=True, marks=marks
            )
            return answer_of(202, applied_command)

        answer = await (
            admission.idempotency_cache.answer(
                idempotency.scoped(key, request.user), requested, work
            )
            if key
            else work()
        )
        return response_of(answer)

    async def changed(
        request: Asked,
        namespace: str,
        name: str,
        what: str,
        patch_of: Callable[[Document], Document | Violation],
    ) -> Applied:
        attempts = 0
        while True:
            attempts += 1
            raw = await cluster.get(kinds.JOBS, namespace, name)
            reject_ended(kinds.JOBS.decode(raw), what)
            before = msgspec.json.decode(raw)
            named = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.kind, **before}
            change = patch_of(named)
            if isinstance(change, Violation):
                raise problems.invalid(change.path, change.reason, change.expected)
            try:
                (applied,) = await admission.submit([change], request.user)
            except errors.ConflictError:
                if attempts == MAX_ATTEMPTS:
                    raise
            else:
                return applied

    @post(JOBS, opt=needs(many("create", kinds.JOBS)), summary="Create a job")
    async def create_job(
        request: Asked,
        namespace: FromPath[str],
        data: JSONBody[Document],
        key: Key = None,
    ) -> Response[msgspec.Raw]:
        return await creator.create(request, key, kinds.JOBS, namespace, data)

    @get("/v1/jobs", opt=LISTED, summary="Jobs of all namespaces")
    async def all_jobs(limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kinds.JOBS, limit=limit, after=after)

    @get(JOBS, opt=LISTED, summary="Jobs of a namespace")
    async def jobs(namespace: FromPath[str], limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kinds.JOBS, namespace, limit=limit, after=after)

    @get(JOB, opt=needs(READ_JOB), summary="One job")
    async def job(namespace: FromPath[str], name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kinds.JOBS, namespace, name))

    @delete(
        JOB,
        status_code=204,
        opt=needs(one("delete", kinds.JOBS)),
        summary="Delete a job and its child objects",
    )
    async def delete_job(request: Asked, namespace: FromPath[str], name: FromPath[str]) -> None:
        await admission.delete_job(namespace, name, request.user)

    @get(JOB + "/pods", opt=needs(READ_JOB, many("list", kinds.PODS)), summary="A job's pods")
    async def job_pods(
        namespace: FromPath[str],
        name: FromPath[str],
        limit: Limit = None,
        after: Continue = None,
    ) -> Items:
        await cluster.get(kinds.JOBS, namespace, name)
        labels = {keys.JOB_NAME: name}
        return await list_page(cluster, kinds.PODS, namespace, labels, limit=limit, after=after)

    @get(
        JOB + "/explanation",
        opt=needs(READ_JOB),
        summary="Why a job is pending, and its position in the queue",
    )
    async def explanation(
        request: Asked, namespace: FromPath[str], name: FromPath[str]
    ) -> explanations.Explanation:
        raw_job = await cluster.get(kinds.JOBS, namespace, name)
        return await explanations.of(admission, kinds.JOBS.decode(raw_job), request.user)

    @post(JOB + "/commands", status_code=202, opt=COMMANDED, summary="Execute an action on a job")
    async def command(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        data: JSONBody[CommandRequest],
        key: Key = None,
    ) -> Response[msgspec.Raw]:
        if data.action not in BY_COMMAND:
            why = f"{data.action!r} is not an action on a job"
            raise problems.invalid("action", why, f"one of {', '.join(BY_COMMAND)}")
        return await commanded(request, key, namespace, name, data.action)

    @post(
        JOB + "/suspend",
        status_code=202,
        opt=COMMANDED,
        summary="End a job's pods; the job can be resumed",
    )
    async def suspend(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        key: Key = None,
    ) -> Response[msgspec.Raw]:
        return await commanded(request, key, namespace, name, "AbortJob")

    @post(
        JOB + "/resume",
        status_code=202,
        opt=COMMANDED,
        summary="Resume a suspended job",
    )
    async def resume(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        key: Key = None,
    ) -> Response[msgspec.Raw]:
        return await commanded(request, key, namespace, name, "ResumeJob")

    @post(
        JOB + "/scale",
        status_code=200,
        opt=needs(READ_JOB, one("patch", kinds.JOBS)),
        summary="Scale a task of a job",
    )
    async def scale(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        data: JSONBody[ScaleRequest],
    ) -> Applied:
        def scaled(job: Document) -> Document | Violation:
            return scaling.scale_patch(job, data.task, data.replicas, data.min_available)

        return await changed(request, namespace, name, "scaling", scaled)

    @patch(
        JOB,
        status_code=200,
        opt=needs(READ_JOB, one("patch", kinds.JOBS)),
        summary="Change replicas, minAvailable, queue, PriorityClass or time limit, cancel indexes",
    )
    async def change_job(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        data: JSONBody[ChangeRequest],
    ) -> Applied:
        wanted = decoding.convert(data, job_change.JobChange, from_attributes=True)

        def merged(job: Document) -> Document | Violation:
            return job_change.change_patch(job, wanted)

        return await changed(request, namespace, name, "change", merged)

    return [
        create_job,
        all_jobs,
        jobs,
        job,
        delete_job,
        job_pods,
        explanation,
        command,
        suspend,
        resume,
        scale,
        change_job,
    ]


def reject_ended(job: batch.Job, action: str) -> None:
    """Raises RejectedError for a job in a final phase, which no command changes."""
    phase = job.status.state.phase
    if phase in ENDED:
        why = f"the job is {phase}: {action} is not possible after the end of a job"
        raise problems.invalid("status.state.phase", why, "submit it again")


def command_of(name: str, namespace: str, uid: str, action: str) -> Document:
    """The Command for an action on a job; the job owns the Command."""
    reference = {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "name": name,
        "uid": uid,
        "controller": True,
    }
    return {
        "apiVersion": kinds.COMMANDS.api_version,
        "kind": kinds.COMMANDS.kind,
        "metadata": {
            "generateName": f"{name}-{action.lower()}-",
            "namespace": namespace,
            "ownerReferences": [reference],
        },
        "action": action,
        "target": reference,
    }
