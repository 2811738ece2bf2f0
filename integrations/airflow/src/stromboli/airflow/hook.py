"""The connection type ``stromboli``: a server, a token and a CA certificate."""

from typing import Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from stromboli.airflow.settings import ServerSettings, of_connection
from stromboli.client import AsyncClient, Client, errors

DEFAULT_CONNECTION = "stromboli_default"


class StromboliHook(BaseHook):  # type: ignore[misc]  # Airflow is not installed here
    """Creates clients for the server of an Airflow connection.

    Without a connection ``stromboli_default`` the client's own defaults apply: ``STROM_SERVER`` or
    a context, ``STROM_TOKEN_FILE``, ``STROM_CA_FILE``.
    """

    conn_name_attr = "stromboli_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = "stromboli"
    hook_name = "Stromboli"

    def __init__(self, stromboli_conn_id: str = DEFAULT_CONNECTION) -> None:
        super().__init__()
        self.stromboli_conn_id = stromboli_conn_id
        self._settings: ServerSettings | None = None

    def server_settings(self) -> ServerSettings:
        """The connection's settings; read once. Raises AirflowNotFoundException."""
        if self._settings is None:
            try:
                self._settings = _settings(self.get_connection(self.stromboli_conn_id))
            except AirflowNotFoundException:
                if self.stromboli_conn_id != DEFAULT_CONNECTION:
                    raise
                self._settings = ServerSettings()
        return self._settings

    async def async_server_settings(self) -> ServerSettings:
        """``server_settings`` for the event loop of the triggerer: reads the connection without
        blocking. Raises AirflowNotFoundException."""
        if self._settings is None:
            try:
                self._settings = _settings(await self.aget_connection(self.stromboli_conn_id))
            except AirflowNotFoundException:
                if self.stromboli_conn_id != DEFAULT_CONNECTION:
                    raise
                self._settings = ServerSettings()
        return self._settings

    def get_conn(self) -> Client:
        """A client, to be closed by the caller. Raises ClientError."""
        return Client(**self.server_settings().client_arguments())

    async def async_client(self) -> AsyncClient:
        """An asynchronous client, to be closed by the caller. Raises ClientError."""
        return AsyncClient(**(await self.async_server_settings()).client_arguments())

    def test_connection(self) -> tuple[bool, str]:
        """List the queues, for Airflow's button *Test*: whether that succeeds, and a message."""
        try:
            with self.get_conn() as client:
                client.queues()
        except errors.ClientError as error:
            return False, str(error)
        return True, f"connected to {client.url}"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """The hidden fields, labels and placeholders of the form for a connection."""
        return {
            "hidden_fields": ["login", "schema"],
            "relabeling": {"host": "Server", "password": "Token"},
            "placeholders": {
                "host": "https://stromboli.example:8480",
                "extra": '{"namespace": "default", "token_file": "", "ca_file": ""}',
            },
        }


def _settings(connection: Connection) -> ServerSettings:
    return of_connection(
        host=connection.host,
        port=connection.port,
        schema=connection.schema,
        password=connection.password,
        extra=connection.extra_dejson,
    )
