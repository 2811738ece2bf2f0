"""All settings of the admission service."""

from typing import Literal

import msgspec

from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.cluster.kubernetes import KubernetesSettings
from stromboli.shared.jobspec.validation import queues
from stromboli.shared.leader_election import LeaseSettings


class AdmissionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What admission itself needs, embedded or not."""

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    """Whose jobs are ours; the first is given to jobs that name none."""
    max_queue_depth: int = queues.MAX_DEPTH
    """Levels of queues below the root: Volcano's limit, and a guard against cycles. The
    controller's ought to be the same."""
    allow_deleting_queues_with_pods: bool = True
    """Whether a queue may be deleted while pods run in it. As Volcano has it."""
    unknown_fields: Literal["reject", "warn"] = "reject"
    """What happens over REST and Kafka to a field of a pod template that the pod schema of the
    Kubernetes version in ``pod_schema.json`` does not have: mostly a typo, which would silently
    have no effect. ``warn`` suits clusters newer than that."""
    webhook_unknown_fields: Literal["reject", "warn"] = "warn"
    """The same for objects that reach the API server by other clients, such as ``kubectl``."""
    resource_groups_file: str = ""
    """YAML of resource groups: where pods are sent. Read again when it changes; none by default."""
    watch_alive_every_s: float = 15.0
    """How often a stream of events says something: below the minute after which proxies hang up."""
    attempts_kept: int = 100_000
    """Attempts of tasks that can be asked for, of all jobs together: about 50 MB."""
    rest_audiences: tuple[str, ...] = ("stromboli",)
    """Tokens made for one of these count at REST. With the API server's own audience among them
    users may come with the tokens of their kubeconfigs, and this service gets to see tokens that
    open the whole API server: so it is not, unless an operator wants that."""
    submissions_audiences: tuple[str, ...] = ("stromboli-submissions",)
    """Tokens made for one of these count on ``admission.submissions``, and should for nothing else:
    every reader of that topic sees them."""
    submission_max_age_s: float = 900.0
    """How long after it was handed in a submission is still done: what its author has given up by
    then should not come to life, and the token is good for ten minutes at least."""
    service_accounts: tuple[str, ...] = ()
    """Users by whose names Stromboli's own services write, as
    ``system:serviceaccount:stromboli:controller``. What they write for a user keeps that user's
    name; any other client is recorded as the submitter itself."""
    reviews_kept_s: float = 10.0
    """How long an answer about a token or a right holds: as long may one that is taken away."""
    requests_per_second: float = 100.0
    """REST requests per second that each user may send on average, where there are accounts; 0: no
    limit. Beyond it the answer is 429 with ``Retry-After``. ``POST /v1/bulk`` is one request."""
    request_burst: float = 1_000.0
    """Requests that a user may send at once after a pause."""
    max_live_jobs_per_user: int = 0
    """Jobs of one submitter that may exist without having ended; 0: no limit. Enforced for REST,
    Kafka and webhooks, counted from ``cluster.jobs``."""
    max_live_jobs_per_queue: int = 0
    """The same for one queue."""
    sync_max_age_s: float = 60.0
    """How old the newest sign of life of the monitor may be before we say *not ready*."""


class Settings(AdmissionSettings, frozen=True, kw_only=True):
    """The service as a process of its own."""

    kafka: KafkaSettings
    kubernetes: KubernetesSettings = KubernetesSettings()
    lease: LeaseSettings = LeaseSettings()
    instance: str = "admission"
    """Names this process in its epoch record."""
    accounts: bool = False
    """Whether REST asks the API server who comes and what they may do (TokenReview,
    SubjectAccessReview). Without, REST listens on loopback only and asks for a token that it makes
    at each start, see ``rest_token_file``."""
    impersonate: bool = False
    """Whether objects are written by impersonation of the user, with ``accounts``: audit logs,
    policies and webhooks of others see the user, and the API server checks the user's rights once
    more. Our account then needs the right to impersonate users and groups, which is as much as all
    of their rights together."""
    rest_host: str = "127.0.0.1"
    """Beyond loopback REST needs accounts and a certificate, and speaks HTTPS."""
    rest_open_to_all: bool = False
    """Beyond loopback without either, and without a token: each client may do what this service
    may. Only for a container whose port is published on the loopback of its machine; REST answers
    to the names of loopback then, and to ``rest_hosts``."""
    rest_port: int = 8480
    rest_hosts: tuple[str, ...] = ()
    """Further names by which REST may be called (the Host header, with any port). Without
    accounts those of loopback always count; with accounts any name does unless some are given."""
    rest_token_file: str = ""
    """Where on loopback, without accounts, the token of each start is written for clients (mode
    0600). By default where ``strom`` and ``stromboli.client`` of the same user look:
    ``~/.local/state/stromboli/tokens/PORT`` ($XDG_STATE_HOME)."""
    header_timeout_s: float = 15.0
    """Time for the headers of a request to REST or a webhook; then 408."""
    body_timeout_s: float = 30.0
    """Period in which the body of a request must make progress; then 408."""
    max_connections: int = 2_000
    """Open connections of REST, and of webhooks; beyond them 503. Each costs about 50 kB."""
    health_host: str = "0.0.0.0"
    """Health has its own port: probes have no account, and metrics are for the operator."""
    health_port: int = 8481
    webhook_host: str = "0.0.0.0"
    webhook_port: int = 8443
    certificate_file: str = ""
    """Webhooks are served with this certificate, and REST beyond loopback. It is read again when it
    changes; with neither it nor ``certificate_secret`` there are no webhooks."""
    key_file: str = ""
    certificate_secret: str = ""
    """``namespace/name`` of a Secret, there already, for certificates that we make and renew."""
    certificate_names: tuple[str, ...] = ()
    """The hosts by which the API server calls us, with ``certificate_secret``."""
    webhook_client_ca_file: str = ""
    """PEM file of the authority that signed the client certificate of API servers (the
    ``kubeConfigFile`` of ``WebhookAdmissionConfiguration`` names that to them). With it webhooks
    answer to its holders alone; without it to any client of the port, which learns what
    admission says of an object, and can change nothing."""
    webhook_configuration: str = "stromboli-admission"
    """Name of the two configurations that tell the API server which authority to trust."""
