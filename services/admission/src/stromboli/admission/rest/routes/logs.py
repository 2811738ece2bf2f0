"""REST route of container logs, for ``strom job logs``."""

import contextlib
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Annotated

from litestar import MediaType, get
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream
from litestar.types import ControllerRouterHandler

from stromboli.admission.rest.authorization import needs, one
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port


def route(cluster: cluster_port.Cluster) -> ControllerRouterHandler:
    """The output of one container, as a stream of plain bytes; errors are returned before its first
    byte.
    """

    @get(
        "/v1/namespaces/{namespace:str}/pods/{name:str}/log",
        media_type=MediaType.TEXT,
        opt=needs(one("get", kinds.PODS, "log")),
        summary="The output of a container, stdout and stderr in order of arrival",
    )
    async def log(
        namespace: FromPath[str],
        name: FromPath[str],
        container: FromQuery[str] = "",
        follow: FromQuery[bool] = False,
        previous: FromQuery[bool] = False,
        tail_lines: Annotated[int | None, QueryParameter(name="tailLines", ge=0)] = None,
        timestamps: FromQuery[bool] = False,
        since: Annotated[
            datetime | None,
            QueryParameter(name="sinceTime", description="Only lines from this time on."),
        ] = None,
        uid: Annotated[
            str,
            QueryParameter(
                name="uid",
                description="The pod must have this uid; a deleted pod is found if its node keeps "
                "the output of deleted pods.",
            ),
        ] = "",
    ) -> Stream:
        query = cluster_port.LogQuery(
            container=container,
            follow=follow,
            previous=previous,
            tail_lines=tail_lines,
            uid=uid,
            timestamps=timestamps,
            since=with_zone(since),
        )
        async with contextlib.AsyncExitStack() as stack:
            chunks = await stack.enter_async_context(cluster.logs(namespace, name, query))
            return Stream(_relayed(chunks, stack.pop_all()))

    return log


def with_zone(at: datetime | None) -> datetime | None:
    """A time of a query; without a zone it is in UTC."""
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)


async def _relayed(
    chunks: AsyncGenerator[bytes, None], opened: contextlib.AsyncExitStack
) -> AsyncGenerator[bytes, None]:
    async with opened:
        async for chunk in chunks:
            yield chunk
