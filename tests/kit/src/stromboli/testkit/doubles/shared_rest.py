"""Admission's REST application, built once per process and served for one test at a time.

Building it costs about 0.1 s of CPU, most of it in the analysis of 85 routes. The routes keep no
state: they read the admission service and the cluster that they were built with. Those are
stand-ins here, which forward to the objects of the running test.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from litestar import Litestar

from stromboli.admission.rest import application
from stromboli.admission.review.service import AdmissionService
from stromboli.shared.cluster import port
from stromboli.shared.runtime import http, runtime


class _StandIn:
    """Forwards attribute access to ``target``."""

    def __init__(self) -> None:
        self.target: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


@functools.cache
def _built() -> tuple[Litestar, _StandIn, _StandIn, list[runtime.Health]]:
    admission, cluster = _StandIn(), _StandIn()
    healths: list[runtime.Health] = []
    routes = application.routes(admission, cluster)  # type: ignore[arg-type]  # stand-ins
    return application.app([*http.health_routes(healths), *routes]), admission, cluster, healths


@contextlib.contextmanager
def rest_of(
    admission: AdmissionService, cluster: port.Cluster, health: runtime.Health
) -> Iterator[Litestar]:
    """The application for this admission service. Raises RuntimeError while another has it."""
    app, admissions, clusters, healths = _built()
    if admissions.target is not None:
        raise RuntimeError("the application serves another test; build one with application.app")
    handler = app.asgi_handler
    admissions.target, clusters.target, healths[:] = admission, cluster, [health]
    try:
        yield app
    finally:
        app.asgi_handler = handler
        admissions.target = clusters.target = None
        healths.clear()
