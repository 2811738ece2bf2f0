"""Admission's REST application, built once per process for many tests.

Building it costs 0.2 s of CPU, most of it in the analysis of 85 routes. The routes keep no state:
they read the admission service and the cluster that they were built with, and the guard checks
requests. Those are stand-ins here, which forward to the objects of the running test. Tests that
have an application at the same time have different ones.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import msgspec
from litestar import Litestar

from stromboli.admission.auth import authentication
from stromboli.admission.rest import application
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.shared.cluster import port
from stromboli.shared.runtime import http, runtime


class _StandIn:
    """Forwards attribute access and calls to ``target``."""

    def __init__(self) -> None:
        self.target: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    async def __call__(self, *arguments: Any) -> None:
        await self.target(*arguments)


class _Built(msgspec.Struct):
    """An application, and what its routes and its guard forward to."""

    app: Litestar
    admission: _StandIn
    cluster: _StandIn
    guard: _StandIn
    healths: list[runtime.Health]

    def set_up(self, admission: Any, cluster: Any, guard: Any, *healths: runtime.Health) -> None:
        """Forward to these."""
        self.admission.target, self.cluster.target, self.guard.target = admission, cluster, guard
        self.healths[:] = healths


_free: dict[bool, list[_Built]] = {False: [], True: []}
"""Has accounts -> applications that no test has now."""


def _build(*, has_accounts: bool) -> _Built:
    admission, cluster, guard = _StandIn(), _StandIn(), _StandIn()
    healths: list[runtime.Health] = []
    own = http.probe_routes(healths) if has_accounts else http.health_routes(healths)
    routes = application.routes(admission, cluster)  # type: ignore[arg-type]  # stand-ins
    app = application.app([*own, *routes], guard.__call__)
    return _Built(app, admission, cluster, guard, healths)


@contextlib.contextmanager
def rest_of(
    admission: AdmissionService,
    cluster: port.Cluster,
    health: runtime.Health,
    authenticator: authentication.Authenticator | None = None,
    settings: AdmissionSettings = AdmissionSettings(),  # noqa: B008 - frozen
) -> Iterator[Litestar]:
    """The application of ``application.rest_application`` for these, while inside."""
    free = _free[authenticator is not None]
    built = free.pop() if free else _build(has_accounts=authenticator is not None)
    handler = built.app.asgi_handler
    built.set_up(admission, cluster, application.guard_of(settings, authenticator), health)
    try:
        yield built.app
    finally:
        built.app.asgi_handler = handler
        built.set_up(None, None, None)
        free.append(built)


@contextlib.asynccontextmanager
async def client_of(
    admission: AdmissionService, cluster: port.Cluster
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application without accounts."""
    with rest_of(admission, cluster, runtime.Health("admission")) as app:
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # same ASGI, other types
        async with httpx.AsyncClient(transport=transport, base_url="http://rest") as client:
            yield client
