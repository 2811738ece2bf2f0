"""Generated certificates: one is always served, registered long before, and renewed in time."""

import asyncio
import base64
import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from stromboli.admission.core import certificates
from stromboli.admission.webhooks import certificates as shell
from stromboli.admission.webhooks import key_pairs
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.runtime import http, runtime
from stromboli.testkit import records

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = ("admission.strom.svc",)
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "mine", "namespace": "default"},
}


def held(
    name: str, age: timedelta, serves: tuple[str, ...] = NAMES
) -> certificates.CertificateInfo:
    made = NOW - age
    return certificates.CertificateInfo(name, made, made + certificates.VALIDITY, frozenset(serves))


def test_a_new_one_is_shown_only_once_it_is_trusted_everywhere() -> None:
    old, new = held("old", timedelta(days=61)), held("new", timedelta(minutes=9))
    assert certificates.served([old, new], NAMES, NOW) == old
    assert certificates.served([old, new], NAMES, NOW + timedelta(minutes=1)) == new


def test_the_first_certificate_is_served_immediately() -> None:
    """There is no older one to serve."""
    assert certificates.served([held("first", timedelta())], NAMES, NOW) is not None


def test_one_for_other_hosts_is_replaced_and_never_shown() -> None:
    other = held("other", timedelta(days=1), ("elsewhere",))
    assert certificates.needs_renewal([other], NAMES, NOW)
    assert certificates.served([other], NAMES, NOW) is None


@given(st.integers(0, 400), st.integers(1, 72))
def test_the_served_certificate_is_always_registered_for_a_while_and_valid(
    days: int, hours: int
) -> None:
    """For more than a year, at any frequency of checks that is at least every few days."""
    known: list[certificates.CertificateInfo] = []
    trusted_since: dict[str, datetime] = {}
    now, end = NOW, NOW + timedelta(days=days)
    while now <= end:
        if certificates.needs_renewal(known, NAMES, now):
            certificate = certificates.CertificateInfo(
                str(now), now, now + certificates.VALIDITY, frozenset(NAMES)
            )
            known = [*certificates.trusted(known, now), certificate]
        for each in certificates.trusted(known, now):
            trusted_since.setdefault(each.name, now)
        shown = certificates.served(known, NAMES, now)
        assert shown is not None
        assert shown.ends_at > now
        is_first = len(trusted_since) == 1
        assert is_first or now - trusted_since[shown.name] >= certificates.TRUST_PROPAGATION
        assert len(certificates.trusted(known, now)) <= 2
        now += timedelta(hours=hours)


class CertificateSetup:
    """A cluster with an empty Secret and both configurations, and a clock to turn."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.now = NOW

    def own(self) -> shell.SelfSignedCertificate:
        return shell.SelfSignedCertificate(
            self.cluster, lambda: self.now, secret="default/mine", names=NAMES, configuration="ours"
        )

    async def set_up(self) -> None:
        await self.cluster.create(kinds.SECRETS, "default", msgspec.json.encode(SECRET))
        for kind in kinds.WEBHOOKS:
            webhooks = [
                {"name": name, "clientConfig": {"service": {"name": "s", "namespace": "default"}}}
                for name in ("a.example.com", "b.example.com")
            ]
            body = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": "ours"},
                "webhooks": webhooks,
            }
            await self.cluster.create(kind, "", msgspec.json.encode(body))

    async def trusted(self) -> list[bytes]:
        """Every webhook's bundle."""
        found = []
        for kind in kinds.WEBHOOKS:
            raw = msgspec.json.decode(await self.cluster.get(kind, "", "ours"))
            found += [each["clientConfig"].get("caBundle", "") for each in raw["webhooks"]]
        return [base64.b64decode(each) for each in found]

    async def secret(self) -> dict[str, Any]:
        raw = await self.cluster.get(kinds.SECRETS, "default", "mine")
        found: dict[str, Any] = msgspec.json.decode(raw)
        return found


@pytest.fixture
async def setup(tmp_path: Path) -> Any:
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        certificate_setup = CertificateSetup(cluster)
        await certificate_setup.set_up()
        yield certificate_setup


async def test_every_webhook_configuration_trusts_the_served_certificate(
    setup: CertificateSetup,
) -> None:
    own = setup.own()
    await own.check()
    certificate = await shown_by(own)
    assert all(certificate in bundle for bundle in await setup.trusted())
    assert len(await setup.trusted()) == 4


async def test_replicas_show_the_same_one(setup: CertificateSetup) -> None:
    first, second = setup.own(), setup.own()
    await first.check()
    await second.check()
    assert await shown_by(first) == await shown_by(second)
    assert len((await setup.secret())["data"]) == 2


async def test_a_second_one_that_writes_the_secret_at_the_same_time_is_refused(
    setup: CertificateSetup,
) -> None:
    """It looks again, and finds the first one's."""
    version = (await setup.secret())["metadata"]["resourceVersion"]
    await setup.own().check()
    pair = key_pairs.make(NAMES, NOW, certificates.VALIDITY)
    with pytest.raises(errors.ConflictError):
        await setup.own()._write(pair, [], version)


async def test_a_renewal_never_serves_an_untrusted_certificate(setup: CertificateSetup) -> None:
    """Generated, registered, later served; the old one is removed after its end."""
    own = setup.own()
    await own.check()
    before = await shown_by(own)
    setup.now += timedelta(days=61)
    await own.check()
    assert await shown_by(own) == before
    (bundle, *_) = await setup.trusted()
    assert bundle.count(b"BEGIN CERTIFICATE") == 2
    setup.now += certificates.TRUST_PROPAGATION
    await own.check()
    after = await shown_by(own)
    assert after != before
    assert after in bundle
    setup.now += timedelta(days=60)
    await own.check()
    (bundle, *_) = await setup.trusted()
    assert before not in bundle
    assert len((await setup.secret())["data"]) == 4


async def test_a_foreign_certificate_is_kept_and_never_served(
    setup: CertificateSetup,
) -> None:
    change = {"data": {"note": "aGk=", "odd.crt": "aGk=", "odd.key": "aGk="}}
    body = msgspec.json.encode(change)
    await setup.cluster.patch(kinds.SECRETS, "default", "mine", body, patch_type="merge")
    own = setup.own()
    await own.check()
    assert change["data"].items() <= (await setup.secret())["data"].items()
    assert (await shown_by(own)).startswith(b"-----BEGIN")


def test_a_client_that_trusts_two_certificates_accepts_either(tmp_path: Path) -> None:
    """The CA bundle has both during a renewal, for weeks. OpenSSL finds a trusted certificate by
    its subject, and takes the first one."""
    now = datetime.now(UTC)
    pairs = [key_pairs.make(NAMES, now - age, certificates.VALIDITY) for age in (WEEKS, NO_TIME)]
    trusting = ssl.create_default_context(cadata=b"".join(map(_certificate, pairs)).decode())
    for number, pair in enumerate(pairs):
        file = tmp_path / f"{number}.pem"
        file.write_bytes(pair.certificate + pair.key)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(file)
        shake_hands(trusting, serving)


WEEKS, NO_TIME = timedelta(weeks=8), timedelta()


def _certificate(pair: key_pairs.KeyPair) -> bytes:
    return pair.certificate


def shake_hands(trusting: ssl.SSLContext, serving: ssl.SSLContext) -> None:
    """A TLS handshake in memory. Raises SSLCertVerificationError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=NAMES[0])
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    while waiting:
        for end in list(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                waiting.remove(end)


async def test_a_changed_file_is_shown_to_the_next_connection(tmp_path: Path) -> None:
    paths = tmp_path / "tls.crt", tmp_path / "tls.key"
    files = shell.CertificateFiles(*map(str, paths))
    shown = []
    for now in (NOW, NOW + timedelta(days=1)):
        pair = key_pairs.make(NAMES, now, certificates.VALIDITY)
        for path, content in zip(paths, (pair.certificate, pair.key), strict=True):
            path.write_bytes(content)
        await files.check()
        shown.append(await shown_by(files) == pair.certificate)
    assert shown == [True, True]


async def test_files_that_do_not_fit_leave_the_one_before_in_force(tmp_path: Path) -> None:
    paths = tmp_path / "tls.crt", tmp_path / "tls.key"
    pair = key_pairs.make(NAMES, NOW, certificates.VALIDITY)
    for path, content in zip(paths, (pair.certificate, pair.key), strict=True):
        path.write_bytes(content)
    files = shell.CertificateFiles(*map(str, paths))
    await files.check()
    paths[1].write_text("half a")
    with pytest.raises(errors.PermanentError, match=r"tls\.crt"):
        await files.check()
    assert await shown_by(files) == pair.certificate


async def test_a_missing_secret_is_reported_and_awaited(setup: CertificateSetup) -> None:
    await setup.cluster.delete(kinds.SECRETS, "default", "mine")
    own, health = setup.own(), runtime.Health("admission")
    with pytest.raises(errors.NotFoundError, match="mine"):
        await own.check()

    async def make_it() -> None:
        await setup.cluster.create(kinds.SECRETS, "default", msgspec.json.encode(SECRET))

    making = asyncio.create_task(make_it())
    async with own.kept(health):
        assert health.is_ready
    await making


async def shown_by(source: shell.CertificateFiles | shell.SelfSignedCertificate) -> bytes:
    """The certificate that a client meets, in PEM."""
    app = http.health_app(runtime.Health("admission"))
    async with http.serving(app, http.listen("127.0.0.1", 0), tls=source.tls) as port:
        blind = ssl.create_default_context()
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=blind)
        met = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
    return ssl.DER_cert_to_PEM_cert(met).encode()


async def test_webhooks_respond_only_to_clients_of_the_configured_ca(tmp_path: Path) -> None:
    """REST, with the same certificate, requires tokens instead."""
    authority, other, own = trustme.CA(), trustme.CA(), trustme.CA()
    shown = own.issue_cert("localhost")
    certificate, key, trusted = (tmp_path / name for name in ("crt", "key", "ca"))
    certificate.write_bytes(b"".join(part.bytes() for part in shown.cert_chain_pems))
    key.write_bytes(shown.private_key_pem.bytes())
    trusted.write_bytes(authority.cert_pem.bytes())
    source = shell.CertificateFiles(str(certificate), str(key))
    with pytest.raises(ValueError, match="absent"):
        source.ask_clients(str(tmp_path / "absent"))
    source.ask_clients(str(trusted))
    await source.check()

    async def is_answered(tls: ssl.SSLContext, signed_by: trustme.CA | None) -> bool:
        client = ssl.create_default_context()
        own.configure_trust(client)
        if signed_by is not None:
            signed_by.issue_cert("api-server").configure_cert(client)
        app = http.health_app(runtime.Health("admission"))
        async with http.serving(app, http.listen("127.0.0.1", 0), tls=tls) as port:
            try:
                async with httpx.AsyncClient(
                    verify=client, timeout=records.DEADLINE_S
                ) as requested:
                    return (await requested.get(f"https://localhost:{port}/livez")).is_success
            except httpx.TransportError:
                return False

    assert await is_answered(source.webhook_tls, authority)
    assert not await is_answered(source.webhook_tls, other)
    assert not await is_answered(source.webhook_tls, None)
    assert await is_answered(source.tls, None)
