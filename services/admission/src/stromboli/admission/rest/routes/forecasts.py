"""REST routes of expected starts: when pending jobs are expected to start."""

from litestar import get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.admission.rest.authorization import many, needs
from stromboli.admission.review.service import AdmissionService
from stromboli.shared.api import kinds
from stromboli.shared.api.views.expected_start import ExpectedStarts

_RIGHT = needs(many("list", kinds.JOBS))


def routes(admission: AdmissionService) -> list[ControllerRouterHandler]:
    """The REST routes of expected starts."""

    @get(
        "/v1/namespaces/{namespace:str}/expected-starts",
        opt=_RIGHT,
        summary="When the pending jobs of a namespace are expected to start",
    )
    async def expected_starts(namespace: FromPath[str]) -> ExpectedStarts:
        return ExpectedStarts(items=admission.expected_starts(namespace))

    @get(
        "/v1/expected-starts",
        opt=_RIGHT,
        summary="When the pending jobs of all namespaces are expected to start",
    )
    async def all_expected_starts() -> ExpectedStarts:
        return ExpectedStarts(items=admission.expected_starts())

    return [expected_starts, all_expected_starts]
