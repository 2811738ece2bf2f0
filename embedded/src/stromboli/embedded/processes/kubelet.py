"""The log endpoint of a kubelet for a real API server: HTTPS on loopback.

``kubectl logs`` and ``pods/log`` use it for process nodes. Clients are not authenticated, since the
API server presents a certificate only if configured to: every local user can read the output of
pods. The endpoint is not started with the embedded cluster, which calls the agent directly.
"""

import contextlib
import datetime
import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from litestar import Litestar, MediaType, Response, get
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from stromboli.embedded.processes import agent
from stromboli.shared import errors
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import http

LOOPBACK = "127.0.0.1"
_VALID = datetime.timedelta(days=3650)


def app(served: agent.ProcessNodeAgent) -> Litestar:
    """Return the web application of the kubelet's log endpoint."""

    @get("/containerLogs/{namespace:str}/{pod:str}/{container:str}", media_type=MediaType.TEXT)
    async def logs(
        namespace: FromPath[str],
        pod: FromPath[str],
        container: FromPath[str],
        follow: FromQuery[bool] = False,
        previous: FromQuery[bool] = False,
        timestamps: FromQuery[bool] = False,
        tailLines: FromQuery[int | None] = None,  # noqa: N803 - the kubelet's name
        sinceTime: FromQuery[datetime.datetime | None] = None,  # noqa: N803 - as above
    ) -> Response[str] | Stream:
        query = cluster_port.LogQuery(
            container=container,
            follow=follow,
            previous=previous,
            tail_lines=tailLines,
            timestamps=timestamps,
            since=sinceTime,
        )
        async with contextlib.AsyncExitStack() as stack:
            opened = served.logs(served.uid_of(namespace, pod), query)
            try:
                chunks = await stack.enter_async_context(opened)
            except errors.PermanentError as error:
                return Response(error.reason, status_code=400, media_type=MediaType.TEXT)
            kept = stack.pop_all()

        async def relayed() -> AsyncIterator[bytes]:
            async with kept:
                async for chunk in chunks:
                    yield chunk

        return Stream(relayed(), media_type=MediaType.TEXT)

    return Litestar([logs], openapi_config=None, logging_config=None)


@contextlib.asynccontextmanager
async def serving(served: agent.ProcessNodeAgent, folder: Path) -> AsyncIterator[None]:
    """Serve on a free port, which the nodes publish from then on."""
    certificate, key = _make_certificate(folder)
    bound = http.listen(LOOPBACK, 0)
    async with http.serving(
        app(served), bound, certificate_file=str(certificate), key_file=str(key)
    ) as port:
        served.endpoint = {
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        yield


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    """Create a self-signed certificate and its key: the API server does not verify it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stromboli process node")])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + _VALID)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = folder / "kubelet.pem", folder / "kubelet.key"
    files[0].write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    files[1].touch(mode=0o600)
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
