"""Jobs from Python: hand in, await, watch. ``Client`` blocks, ``AsyncClient`` is awaited."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stromboli.client.asynchronous import AsyncClient
    from stromboli.client.blocking import Client
    from stromboli.client.jobs import job

__all__ = ["AsyncClient", "Client", "job"]
_HOMES = {"AsyncClient": "asynchronous", "Client": "blocking", "job": "jobs"}


def __getattr__(name: str) -> Any:
    """Clients are imported once they are asked for: they bring httpx, 0.1 s, which who wants
    nothing but the answers' types need not pay."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    found = getattr(home, name)
    globals()[name] = found
    return found
