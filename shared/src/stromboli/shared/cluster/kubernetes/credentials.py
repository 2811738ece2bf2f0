"""The address and credentials of an API server, which are renewed before they expire.

kubernetes-asyncio implements kubeconfigs, exec plugins, OIDC and service accounts. This module
loads its configuration, refreshes it periodically and returns what a request needs.
"""

import asyncio
import os
import pathlib
import ssl
from typing import Any

from stromboli.shared import errors
from stromboli.shared.cluster.kubernetes.settings import KubernetesSettings

REFRESH_AFTER_S = 60.0
"""Seconds for which credentials are used without a refresh. Short-lived tokens are renewed minutes
before they expire, and an exec plugin runs again only when its token is about to expire.
"""

DEFAULT_FILE = "~/.kube/config"
"""The file that kubectl reads if ``KUBECONFIG`` is not set."""

_WHAT = "read the Kubernetes configuration"


class Credentials:
    """The address of the API server and the headers of requests."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._configuration: Any = None
        self._loader: Any = None
        self._fresh_until = 0.0
        self._refreshing = asyncio.Lock()
        self.tls: ssl.SSLContext | None = None

    async def load(self) -> None:
        """Read the configuration. Raises ConfigurationError with the reason if it is invalid."""
        # Imported here: it imports every generated model class, which takes 1.5 s of a process's
        # start, and only processes that use an API server need it.
        from kubernetes_asyncio import client, config

        self._configuration = client.Configuration()
        path = self._settings.kubeconfig
        in_cluster = not path and os.environ.get("KUBERNETES_SERVICE_HOST")
        try:
            if path:
                _check_file(path)  # for an empty file the loader would only report a missing key
            elif not in_cluster:
                _check_default_files()
            if in_cluster:
                config.load_incluster_config(  # type: ignore[no-untyped-call]  # it has no types
                    self._configuration
                )
            else:
                self._loader = await config.load_kube_config(
                    config_file=path or None,
                    context=self._settings.context or None,
                    client_configuration=self._configuration,
                )
            self.tls = self._make_tls()
        except errors.ConfigurationError:
            raise
        except Exception as error:  # the loader may raise any exception for a malformed file
            raise errors.ConfigurationError(_WHAT, f"{type(error).__name__}: {error}") from error
        self._keep()

    @property
    def host(self) -> str:
        """The server's scheme, host and port, possibly with a path prefix."""
        host: str = self._configuration.host
        return host

    @property
    def request_options(self) -> dict[str, Any]:
        """aiohttp's options for this server: proxy, TLS server name."""
        options = {
            "proxy": self._configuration.proxy,
            "server_hostname": self._configuration.tls_server_name,
        }
        return {name: value for name, value in options.items() if value}

    async def headers(self) -> dict[str, str]:
        """The current credentials. Raises UnavailableError when they cannot be renewed."""
        if asyncio.get_running_loop().time() >= self._fresh_until:
            await self.refresh()
        try:
            # This call also reads the service account's token file again, if that is due.
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # as in load
            raise _unreadable(error) from error
        # aiohttp rejects a header that ends with the newline of a file.
        return {"Authorization": token.strip()} if token else {}

    async def refresh(self) -> None:
        """Read the credentials again, once for all concurrent callers. Raises UnavailableError."""
        if self._loader is None:
            return
        before = self._fresh_until
        async with self._refreshing:
            if self._fresh_until != before:
                return
            try:
                await self._loader.load_and_set(self._configuration)
                self._load_client_certificate()
            except Exception as error:  # as in load
                raise _unreadable(error) from error
            self._keep()

    def _keep(self) -> None:
        renews = self._loader is not None
        now = asyncio.get_running_loop().time()
        self._fresh_until = now + REFRESH_AFTER_S if renews else float("inf")

    def _make_tls(self) -> ssl.SSLContext:
        """The TLS context, configured as kubernetes-asyncio's own client does."""
        self.tls = ssl.create_default_context(cafile=self._configuration.ssl_ca_cert)
        if not self._configuration.verify_ssl:
            self.tls.check_hostname = False
            self.tls.verify_mode = ssl.CERT_NONE
        self._load_client_certificate()
        return self.tls

    def _load_client_certificate(self) -> None:
        """Use the current client certificate for new connections; it may have been renewed."""
        if self.tls is not None and self._configuration.cert_file:
            self.tls.load_cert_chain(self._configuration.cert_file, self._configuration.key_file)


def _check_file(path: str) -> None:
    pathlib.Path(path).open("rb").close()


def _check_default_files() -> None:
    """Raise ConfigurationError if none of the files that kubectl reads exists."""
    named = os.environ.get("KUBECONFIG", "")
    files = [file for file in named.split(os.pathsep) if file] or [DEFAULT_FILE]
    if not any(pathlib.Path(file).expanduser().exists() for file in files):
        raise errors.ConfigurationError(
            _WHAT,
            f"there is no {' and no '.join(files)}, and this is not a pod "
            "(KUBERNETES_SERVICE_HOST is not set); set STROM_KUBERNETES_KUBECONFIG to the path "
            "of a kubeconfig",
        )


def _unreadable(error: Exception) -> errors.UnavailableError:
    return errors.UnavailableError(_WHAT, f"{type(error).__name__}: {error}")
