"""Python client: submit jobs, wait for them, watch them. ``Client`` blocks, ``AsyncClient`` is for
asyncio.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stromboli.client.asynchronous import AsyncClient
    from stromboli.client.blocking import Client
    from stromboli.client.jobs import job

__all__ = ["AsyncClient", "Client", "job"]
_HOMES = {"AsyncClient": "asynchronous", "Client": "blocking", "job": "jobs"}


def __getattr__(name: str) -> Any:
    """Imports the clients on first use: they import httpx, which takes 0.1 s and is not needed by
    programs that use only the response types.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    member = getattr(home, name)
    globals()[name] = member
    return member
