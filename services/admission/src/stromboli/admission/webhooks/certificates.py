"""The certificate of the webhooks, kept up to date while the service runs.

Either files, which an external tool renews, or self-signed certificates in a Secret: then the
service writes the CA bundle into both webhook configurations. Several replicas may do so
concurrently: what they write derives from the Secret, and a second writer of the Secret gets a
conflict and reads it again.
"""

import abc
import asyncio
import base64
import contextlib
import pathlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from stromboli.admission.core import certificates
from stromboli.admission.webhooks import key_pairs
from stromboli.shared import errors
from stromboli.shared.api import kinds, meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import runtime, telemetry

CHECK_EVERY_S = 30.0
"""Interval of checks of the files or the Secret, in seconds: a change of a Secret reaches mounted
files within a minute."""
_FACT = "certificate"


class _Source(abc.ABC):
    """The source of a certificate. Loads it into ``tls``, which servers use for new connections,
    and into ``webhook_tls``, which is the same unless ``ask_clients`` was called.
    """

    def __init__(self) -> None:
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.webhook_tls = self.tls
        self._loaded = b""

    def ask_clients(self, authority_file: str) -> None:
        """Require a client certificate of this authority (PEM) for webhooks. Raises ValueError if
        it cannot be read.
        """
        self.webhook_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.webhook_tls.verify_mode = ssl.CERT_REQUIRED
        try:
            self.webhook_tls.load_verify_locations(cafile=authority_file)
        except OSError as error:  # includes ssl.SSLError
            raise ValueError(f"{authority_file}: {error.strerror or error}") from None

    @abc.abstractmethod
    async def check(self) -> None:
        """Read the source and load changes. Raises ExternalError."""

    @contextlib.asynccontextmanager
    async def kept(self, health: runtime.Health) -> AsyncIterator[ssl.SSLContext]:
        """Keeps the certificate up to date while inside. Entering waits for the first certificate;
        the service is not ready meanwhile."""
        health.set(_FACT, "not loaded yet")
        first = asyncio.Event()

        async def keep() -> None:
            backoff = runtime.Backoff()
            while True:
                try:
                    await self.check()
                except errors.ExternalError as error:
                    # Continue with the loaded certificate, which is valid for weeks.
                    (health.warn if first.is_set() else health.set)(_FACT, str(error))
                    await asyncio.sleep(backoff.next_s(error.retry_after_s))
                else:
                    health.set(_FACT, None)
                    health.warn(_FACT, None)
                    first.set()
                    await asyncio.sleep(CHECK_EVERY_S)

        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(keep())
            await first.wait()
            try:
                yield self.tls
            finally:
                keeping.cancel()

    def _load(self, certificate: bytes, key: bytes) -> None:
        """Use this certificate for new connections."""
        if self._loaded == certificate + key:
            return
        with tempfile.NamedTemporaryFile(prefix="stromboli-") as file:  # readable by its owner only
            file.write(certificate + b"\n" + key)
            file.flush()
            for context in {self.tls, self.webhook_tls}:
                context.load_cert_chain(file.name)
        self._loaded = certificate + key
        telemetry.log.info("certificate in use", ends_at=key_pairs.ends_at(certificate).isoformat())


class CertificateFiles(_Source):
    """PEM files that an external tool renews."""

    def __init__(self, certificate: str, key: str) -> None:
        super().__init__()
        self._paths = (pathlib.Path(certificate), pathlib.Path(key))

    async def check(self) -> None:
        """Read the certificate files. Raises PermanentError when they are not a certificate and its
        key."""
        try:
            self._load(*(path.read_bytes() for path in self._paths))
        except (OSError, ssl.SSLError, ValueError) as error:
            raise errors.PermanentError(f"read {self._paths[0]}", str(error)) from error


class SelfSignedCertificate(_Source):
    """Self-signed certificates in an existing Secret, trusted by two webhook configurations."""

    def __init__(
        self,
        cluster: cluster_port.Cluster,
        clock: runtime.Clock,
        *,
        secret: str,
        names: Sequence[str],
        configuration: str,
    ) -> None:
        """``secret``: namespace/name. ``configuration``: the name of both webhook
        configurations."""
        super().__init__()
        self._cluster = cluster
        self._clock = clock
        self._namespace, _, self._name = secret.partition("/")
        self._names = names
        self._configuration = configuration

    async def check(self) -> None:
        """Create a certificate when due, update the CA bundles, then serve one: in this order."""
        now = self._clock()
        pairs, version = await self._read()
        if certificates.needs_renewal([pair.held for pair in pairs.values()], self._names, now):
            new_pair = key_pairs.make(self._names, now, certificates.VALIDITY)
            over = [name for name, pair in pairs.items() if pair.held.ends_at <= now]
            await self._write(new_pair, over, version)
            pairs, _ = await self._read()
        certificate_infos = [pair.held for pair in pairs.values()]
        authorities = [
            pairs[each.name].certificate for each in certificates.trusted(certificate_infos, now)
        ]
        for kind in kinds.WEBHOOKS:
            await self._trust(kind, b"".join(authorities))
        certificate = certificates.served(certificate_infos, self._names, now)
        if certificate is None:
            raise errors.TransientError(
                f"read Secret {self._name}", "the Secret contains no usable certificate"
            )
        self._load(pairs[certificate.name].certificate, pairs[certificate.name].key)

    async def _read(self) -> tuple[dict[str, key_pairs.KeyPair], str]:
        """The valid key pairs in the Secret by name, and its version."""
        raw = await self._cluster.get(kinds.SECRETS, self._namespace, self._name)
        secret = msgspec.json.decode(raw)
        data = {name: base64.b64decode(value) for name, value in (secret.get("data") or {}).items()}
        pairs = {}
        for name in sorted(entry.removesuffix(".crt") for entry in data if entry.endswith(".crt")):
            try:
                pairs[name] = key_pairs.read(name, data[f"{name}.crt"], data[f"{name}.key"])
            except (KeyError, ValueError) as error:
                telemetry.log.warning("certificate not readable", name=name, reason=str(error))
        return pairs, secret["metadata"]["resourceVersion"]

    async def _write(self, pair: key_pairs.KeyPair, over: Sequence[str], version: str) -> None:
        """Write the Secret. Raises ConflictError when another replica was first."""
        name = pair.held.name
        fresh = {f"{name}.crt": _text(pair.certificate), f"{name}.key": _text(pair.key)}
        gone = {f"{each}.{end}": None for each in over for end in ("crt", "key")}
        change = {"metadata": {"resourceVersion": version}, "data": fresh | gone}
        body = msgspec.json.encode(change)
        await self._cluster.patch(
            kinds.SECRETS, self._namespace, self._name, body, patch_type="merge"
        )
        telemetry.log.info("certificate created", name=name, ends_at=pair.held.ends_at.isoformat())

    async def _trust(self, kind: Kind[meta.Object], authorities: bytes) -> None:
        raw = await self._cluster.get(kind, "", self._configuration)
        webhooks: list[dict[str, Any]] = msgspec.json.decode(raw).get("webhooks") or []
        wanted = _text(authorities)
        changes = [
            change
            for place, webhook in enumerate(webhooks)
            if webhook["clientConfig"].get("caBundle") != wanted
            for change in (
                {"op": "test", "path": f"/webhooks/{place}/name", "value": webhook["name"]},
                {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": wanted},
            )
        ]
        if changes:
            body = msgspec.json.encode(changes)
            await self._cluster.patch(kind, "", self._configuration, body, patch_type="json")


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
