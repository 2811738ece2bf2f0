"""All settings of the admission service."""

from typing import Literal

import msgspec

from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.cluster.kubernetes import KubernetesSettings
from stromboli.shared.jobspec.validation.queueing import queues
from stromboli.shared.leader_election import LeaseSettings


class AdmissionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of admission, in embedded mode or as a process."""

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    """Scheduler names of our jobs; the first is the default of jobs without one."""
    max_queue_depth: int = queues.MAX_DEPTH
    """Levels of queues below the root: Volcano's limit, and a guard against cycles. Use the same
    value for the controller.
    """
    allow_deleting_queues_with_pods: bool = True
    """Whether a queue may be deleted while pods run in it, as in Volcano."""
    unknown_fields: Literal["reject", "warn"] = "reject"
    """What REST and Kafka do with a field of a pod template that the Kubernetes version in
    ``pod_schema.json`` does not have: usually a typo, which would silently have no effect. Use
    ``warn`` for clusters with a newer version."""
    webhook_unknown_fields: Literal["reject", "warn"] = "warn"
    """The same for objects that reach the API server through other clients, such as ``kubectl``."""
    resource_groups_file: str = ""
    """YAML file of resource groups, which assign pods to parts of the cluster. Read again when it
    changes; none by default.
    """
    watch_alive_every_s: float = 15.0
    """Interval of keep-alive messages in event streams: below the minute after which proxies close
    idle connections.
    """
    attempts_kept: int = 100_000
    """Task attempts in the history, over all jobs: about 50 MB. In addition, the same number of
    jobs without attempts is kept."""
    rest_audiences: tuple[str, ...] = ("stromboli",)
    """Audiences of the tokens that REST accepts. If the API server's own audience is among them,
    users may send the tokens of their kubeconfigs. This service then sees tokens that are valid for
    the whole API server, so that audience is not included by default.
    """
    submissions_audiences: tuple[str, ...] = ("stromboli-submissions",)
    """Audiences of the tokens that ``admission.submissions`` accepts. They should be valid for
    nothing else, because every reader of the topic sees the tokens.
    """
    submission_max_age_s: float = 900.0
    """Maximum age of a submission: older ones are rejected, because their author has probably given
    up. A token is valid for at least ten minutes.
    """
    service_accounts: tuple[str, ...] = ()
    """User names of Stromboli's own services, such as
    ``system:serviceaccount:stromboli:controller``. Objects that they write keep the recorded
    submitter; any other client is recorded as the submitter itself.
    """
    reviews_kept_s: float = 10.0
    """How long results of authentication and authorization are cached; a revoked right remains
    effective for that time.
    """
    requests_per_second: float = 100.0
    """REST requests per second that each user may send on average, with accounts; 0: no limit.
    Beyond it the response is 429 with ``Retry-After``. ``POST /v1/bulk`` is one request.
    """
    request_burst: float = 1_000.0
    """Number of requests that a user may send immediately after a pause."""
    max_live_jobs_per_user: int = 0
    """Maximum number of live jobs (jobs that have not ended) of one submitter; 0: no limit.
    Enforced for REST, Kafka and webhooks, counted from ``cluster.jobs``. In a burst each replica
    may admit as many as the limit leaves free, since the admissions of another replica are visible
    only about a second later."""
    max_live_jobs_per_queue: int = 0
    """The same limit for the jobs of one queue."""
    sync_max_age_s: float = 60.0
    """Maximum age of the monitor's last heartbeat; beyond it the service is *not ready*."""


class Settings(AdmissionSettings, frozen=True, kw_only=True):
    """Settings of the service as a process."""

    kafka: KafkaSettings
    kubernetes: KubernetesSettings = KubernetesSettings()
    lease: LeaseSettings = LeaseSettings()
    instance: str = "admission"
    """Identifies this process in its epoch record."""
    accounts: bool = False
    """Whether REST authenticates clients and checks their rights with the API server (TokenReview,
    SubjectAccessReview). Otherwise, REST listens on loopback only and requires a token that it
    generates at each start, see ``rest_token_file``.
    """
    impersonate: bool = False
    """Whether the service impersonates the user when it writes objects; requires ``accounts``.
    Audit logs, policies and other webhooks then see the user, and the API server checks the user's
    rights again. The service account needs the right to impersonate users and groups, which
    includes all of their rights together.
    """
    rest_host: str = "127.0.0.1"
    """Listening address of REST. Outside loopback it needs accounts and a certificate, and serves
    HTTPS.
    """
    rest_open_to_all: bool = False
    """Allows REST outside loopback without accounts, certificate and token: each client has all
    rights of this service. Only for a container whose port is published on the loopback of its
    machine; REST then accepts the host names of loopback, and ``rest_hosts``.
    """
    rest_port: int = 8480
    rest_hosts: tuple[str, ...] = ()
    """Additional host names of REST (the Host header, with any port). Without accounts the loopback
    names are always accepted; with accounts any name is, unless some are configured.
    """
    rest_token_file: str = ""
    """File for the token that is generated at each start, on loopback without accounts (mode 0600).
    By default where ``strom`` and ``stromboli.client`` of the same user look for it:
    ``~/.local/state/stromboli/tokens/PORT`` ($XDG_STATE_HOME).
    """
    header_timeout_s: float = 15.0
    """Time for a TLS handshake, and for the headers of a request to REST or a webhook; then 408."""
    body_timeout_s: float = 30.0
    """Period in which the body of a request must make progress; then 408."""
    max_connections: int = 2_000
    """Open connections of REST, and of webhooks, with TLS handshakes under way; beyond them 503.
    Each costs about 50 kB."""
    health_host: str = "0.0.0.0"
    """Address of the health endpoint, which has its own port: probes have no account, and metrics
    are for the operator.
    """
    health_port: int = 8481
    webhook_host: str = "0.0.0.0"
    webhook_port: int = 8443
    certificate_file: str = ""
    """Certificate of the webhooks, and of REST outside loopback. Read again when it changes; with
    neither this nor ``certificate_secret`` no webhooks are served.
    """
    key_file: str = ""
    certificate_secret: str = ""
    """``namespace/name`` of an existing Secret, for self-signed certificates that the service
    creates and renews.
    """
    certificate_names: tuple[str, ...] = ()
    """Host names under which the API server calls this service; required with
    ``certificate_secret``."""
    webhook_client_ca_file: str = ""
    """PEM file of the authority that signed the client certificate of API servers (configured there
    by the ``kubeConfigFile`` of ``WebhookAdmissionConfiguration``). With it, webhooks answer only
    clients with such a certificate. Without it, they answer any client that reaches the port: such
    a client sees how admission reviews an object and can have a review or a user's request
    recorded, but cannot change anything.
    """
    history_url: str = ""
    """URL of the history's queries, such as ``http://stromboli-history:8485``; empty: REST has no
    history."""
    history_token_file: str = ""
    """File with the token that the history requires, see ``STROM_HISTORY_QUERIES_TOKEN_FILE``."""
    history_ca_file: str = ""
    """PEM file of the authority of the history's certificate, for https."""
    webhook_configuration: str = "stromboli-admission"
    """Name of the two webhook configurations in which the service sets its CA bundle."""
