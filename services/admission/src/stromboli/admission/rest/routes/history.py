"""REST routes of a job's tasks: their current state and all earlier attempts, also of deleted
jobs.
"""

from typing import Annotated

import msgspec
from litestar import get
from litestar.params import FromPath, QueryParameter
from litestar.types import ControllerRouterHandler

from stromboli.admission.rest.authorization import many, needs, one
from stromboli.admission.review.service import AdmissionService
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.api.views.task_history import TaskHistory
from stromboli.shared.cluster import port as cluster_port

NO = ("false", "0")
History = Annotated[
    str | None,
    QueryParameter(name="history", description="Every attempt, not only the last of each index."),
]
Uid = Annotated[
    str,
    QueryParameter(name="uid", description="An earlier job of this name, by its uid."),
]


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """The REST routes of a job's tasks."""

    def earlier(key: str, uid: str) -> TaskHistory:
        job_history = admission.task_histories.of(key, uid)
        if job_history is None:
            raise errors.NotFoundError(f"get Job {key}", f"no events of a job with uid {uid}")
        return job_history

    async def current(key: str) -> TaskHistory:
        """The tasks of the existing job, or of the last job of this name."""
        job_history = admission.task_histories.of(key)
        try:
            now = kinds.metadata_of(await cluster.get(kinds.JOBS, *key.split("/")))
        except errors.NotFoundError:
            if job_history is None:
                raise
            return job_history
        if job_history is not None and job_history.uid == now.uid:
            return job_history
        # No event of the existing job has been read yet.
        complete = admission.task_histories.is_complete
        uids = () if job_history is None else (job_history.uid, *job_history.earlier)
        return TaskHistory(job=key, uid=now.uid, complete=complete, earlier=uids)

    @get(
        "/v1/namespaces/{namespace:str}/jobs/{name:str}/tasks",
        opt=needs(one("get", kinds.JOBS), many("list", kinds.PODS)),
        summary="A job's tasks: state, node, reason and times; with ?history, of every attempt",
    )
    async def tasks(
        namespace: FromPath[str], name: FromPath[str], history: History = None, uid: Uid = ""
    ) -> TaskHistory:
        key = f"{namespace}/{name}"
        job_history = earlier(key, uid) if uid else await current(key)
        if history is None or history.lower() in NO:
            return msgspec.structs.replace(job_history, tasks=job_history.latest)
        return job_history

    return [tasks]
