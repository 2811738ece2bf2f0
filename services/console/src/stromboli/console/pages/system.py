"""The state of the system's services."""

from litestar import get
from litestar.types import ControllerRouterHandler

from stromboli.client.operations import calls
from stromboli.console.pages.requests import Console, Page, Web


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The page of system health, for viewers who may read the whole cluster."""

    @get("/system")
    async def system(request: Web) -> Page:
        session = console.session(request)
        system_health = await session.client.send(calls.system_health())
        return console.page(
            session,
            "system.html",
            section="system",
            live="/live/clock",
            health=system_health,
            grafana=console.settings.grafana_url,
        )

    return [system]
