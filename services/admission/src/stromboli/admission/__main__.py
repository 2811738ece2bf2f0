"""``python -m stromboli.admission``: runs the service as its own process."""

import contextlib
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from litestar import Litestar

from stromboli.admission import lease_status, remote_history, service
from stromboli.admission.auth import authentication
from stromboli.admission.kafka import submission_consumer
from stromboli.admission.rest import application
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import Settings
from stromboli.admission.webhooks import certificates, webhooks
from stromboli.shared import loopback_token, process
from stromboli.shared.cluster.kubernetes import KubernetesAccounts, KubernetesCluster
from stromboli.shared.cluster.port import Cluster
from stromboli.shared.leader_election import cluster_lease
from stromboli.shared.runtime import http, http_protocol, runtime, telemetry

LOOPBACK = loopback_token.HOSTS


async def main(settings: Settings, health: runtime.Health) -> None:
    """Serve REST, webhooks and health until stopped."""
    is_local = settings.rest_host in LOOPBACK or settings.rest_open_to_all
    _check_exposed(settings, is_local)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            process.serve_health(health, settings.health_host, settings.health_port)
        )
        cluster = await stack.enter_async_context(KubernetesCluster(settings.kubernetes))
        authenticator = None
        if settings.accounts:
            known = KubernetesAccounts(cluster)
            authenticator = authentication.Authenticator(
                known, settings.reviews_kept_s, time.monotonic
            )
        impersonate = cluster.impersonating if settings.impersonate else None
        admission = AdmissionService(settings, cluster, runtime.utc_now, authenticator, impersonate)
        if settings.history_url:
            admission.history = await stack.enter_async_context(
                remote_history.connect(
                    settings.history_url, settings.history_token_file, settings.history_ca_file
                )
            )
        asks_for_token = settings.rest_host in LOOPBACK and authenticator is None
        token = loopback_token.new_token() if asks_for_token else ""
        # With accounts, a proxy on this machine may forward requests with any Host header.
        own_hosts = LOOPBACK if is_local and authenticator is None else ()
        hosts = (*own_hosts, *settings.rest_hosts)
        front = application.rest_application(
            admission, cluster, settings, [health], authenticator, token=token, hosts=hosts
        )
        if is_local:
            await stack.enter_async_context(_rest(front, admission, settings, token=token))
        if (certificate := _certificate(settings, cluster)) is not None:
            if settings.webhook_client_ca_file:
                _require_client_certificates(certificate, settings.webhook_client_ca_file)
            bound = http.listen(settings.webhook_host, settings.webhook_port)
            tls = await stack.enter_async_context(certificate.kept(health))
            serving = http.serving(
                webhooks.app(admission),
                bound,
                tls=certificate.webhook_tls,
                limits=_limits(settings),
            )
            port = await stack.enter_async_context(serving)
            telemetry.log.info("listening", webhooks=f"https://{settings.webhook_host}:{port}")
            if not is_local:
                await stack.enter_async_context(_rest(front, admission, settings, tls))
        bus = await stack.enter_async_context(process.connect_bus(settings.kafka, health))
        await stack.enter_async_context(process.watch_dependency(cluster, "API server", health))
        lease = cluster_lease.lease(
            settings.lease,
            "admission",
            settings.kafka.cluster_name,
            cluster,
            health,
            runtime.utc_now,
            role=submission_consumer.ROLE,
            essential=False,
        )
        leases = lease_status.LeaseStatus(
            cluster, settings.lease, settings.kafka.cluster_name, runtime.utc_now
        )
        await service.serve(
            admission,
            settings,
            bus,
            health,
            runtime.utc_now,
            settings.instance,
            lease,
            leases.read,
        )


@contextlib.asynccontextmanager
async def _rest(
    app: Litestar,
    admission: AdmissionService,
    settings: Settings,
    tls: ssl.SSLContext | None = None,
    token: str = "",
) -> AsyncIterator[None]:
    bound = http.listen(settings.rest_host, settings.rest_port)
    async with http.serving(app, bound, tls=tls, limits=_limits(settings)) as port:
        scheme = "https" if tls else "http"
        url = f"{scheme}://{settings.rest_host}:{port}"
        token_file = loopback_token.file_of(port, os.environ)
        file = Path(settings.rest_token_file) if settings.rest_token_file else token_file
        telemetry.log.info("listening", rest=url, accounts=settings.accounts)
        with loopback_token.publish_token(token, file) if token else contextlib.nullcontext():
            async with admission.watch_caches:
                yield


def _require_client_certificates(
    certificate: certificates.CertificateFiles | certificates.SelfSignedCertificate, file: str
) -> None:
    try:
        certificate.ask_clients(file)
    except ValueError as error:
        sys.exit(f"STROM_ADMISSION_WEBHOOK_CLIENT_CA_FILE: {error}")


def _limits(settings: Settings) -> http_protocol.Limits:
    return http_protocol.Limits(
        header_timeout_s=settings.header_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        max_connections=settings.max_connections,
    )


def _check_exposed(settings: Settings, is_local: bool) -> None:
    """Exit if REST outside loopback lacks accounts or a certificate."""
    if settings.rest_open_to_all and settings.accounts:
        sys.exit(
            "STROM_ADMISSION_REST_OPEN_TO_ALL and STROM_ADMISSION_ACCOUNTS contradict each other: "
            "unset the first one; clients then authenticate"
        )
    if is_local:
        return
    where = f"STROM_ADMISSION_REST_HOST={settings.rest_host}: outside loopback"
    local = f"or listen on loopback: {', '.join(LOOPBACK)}"
    if not settings.accounts:
        sys.exit(f"{where} REST needs accounts; set STROM_ADMISSION_ACCOUNTS=true, {local}")
    if not settings.certificate_file and not settings.certificate_secret:
        sys.exit(
            f"{where} REST needs a certificate, since requests carry tokens; set "
            "STROM_ADMISSION_CERTIFICATE_FILE and STROM_ADMISSION_KEY_FILE, or "
            f"STROM_ADMISSION_CERTIFICATE_SECRET, {local}"
        )


def _certificate(
    settings: Settings, cluster: Cluster
) -> certificates.CertificateFiles | certificates.SelfSignedCertificate | None:
    """The source of the webhooks' certificate; None: no webhooks are served."""
    if settings.certificate_file:
        return certificates.CertificateFiles(settings.certificate_file, settings.key_file)
    if not settings.certificate_secret:
        return None
    if "/" not in settings.certificate_secret or not settings.certificate_names:
        sys.exit(
            "STROM_ADMISSION_CERTIFICATE_SECRET must have the form namespace/name, and "
            "STROM_ADMISSION_CERTIFICATE_NAMES must list the host names under which the API server "
            "calls this service"
        )
    return certificates.SelfSignedCertificate(
        cluster,
        runtime.utc_now,
        secret=settings.certificate_secret,
        names=settings.certificate_names,
        configuration=settings.webhook_configuration,
    )


if __name__ == "__main__":
    process.start("admission", Settings, main)
