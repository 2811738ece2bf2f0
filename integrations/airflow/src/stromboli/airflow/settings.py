"""The server and its credentials, from an Airflow connection or from options. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

DEFAULT_NAMESPACE = "default"


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a client. An empty field selects its default, such as ``STROM_SERVER``."""

    url: str = ""
    token: str = ""
    token_file: str = ""
    ca_file: str = ""
    namespace: str = DEFAULT_NAMESPACE

    def client_arguments(self) -> dict[str, Any]:
        """The keyword arguments for ``Client`` and ``AsyncClient``."""
        return {
            "url": self.url or None,
            "token": self.token or None,
            "token_file": self.token_file or None,
            "ca_file": self.ca_file or None,
        }


def of_connection(
    *,
    host: str | None,
    port: int | None,
    schema: str | None,
    password: str | None,
    extra: Mapping[str, Any],
) -> ServerSettings:
    """The settings of a connection. ``host``: a URL or a name; the scheme of a name is ``schema``,
    by default ``https``. ``extra``: ``token_file``, ``ca_file``, ``namespace``."""
    url = (host or "").rstrip("/")
    if url and "://" not in url:
        url = f"{schema or 'https'}://{url}"
    if url and port:
        url = f"{url}:{port}"
    return ServerSettings(
        url=url,
        token=password or "",
        token_file=str(extra.get("token_file") or ""),
        ca_file=str(extra.get("ca_file") or ""),
        namespace=str(extra.get("namespace") or DEFAULT_NAMESPACE),
    )
