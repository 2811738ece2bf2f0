"""REST about a job's tasks: what they are now, and every attempt before, also of a job that is
gone."""

from typing import Annotated

import msgspec
from litestar import get
from litestar.params import FromPath, QueryParameter
from litestar.types import ControllerRouterHandler

from stromboli.admission.door import Door
from stromboli.admission.rights import many, needs, one
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.api.task_history import TaskHistory
from stromboli.shared.cluster import port as cluster_port

NO = ("false", "0")
History = Annotated[
    str | None,
    QueryParameter(name="history", description="Every attempt, not only the last of each index."),
]


def routes(door: Door, cluster: cluster_port.Cluster) -> list[ControllerRouterHandler]:
    """All of them."""

    @get(
        "/v1/namespaces/{namespace:str}/jobs/{name:str}/tasks",
        opt=needs(one("get", kinds.JOBS), many("list", kinds.PODS)),
        summary="A job's tasks: state, node, reason and times; with ?history of every attempt",
    )
    async def tasks(
        namespace: FromPath[str], name: FromPath[str], history: History = None
    ) -> TaskHistory:
        found = door.histories.of(f"{namespace}/{name}")
        try:
            now = kinds.metadata_of(await cluster.get(kinds.JOBS, namespace, name))
        except errors.NotFoundError:
            if found is None:
                raise
        else:
            if found is None or found.uid != now.uid:
                # The job is younger than what was told so far.
                complete = door.histories.is_complete
                found = TaskHistory(job=f"{namespace}/{name}", uid=now.uid, complete=complete)
        if history is None or history.lower() in NO:
            return msgspec.structs.replace(found, tasks=found.latest)
        return found

    return [tasks]
