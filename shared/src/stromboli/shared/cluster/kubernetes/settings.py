"""How to reach an API server: ``STROM_KUBERNETES_...`` in every service alike."""

import msgspec


class KubernetesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is, and how long and how much we ask of it."""

    kubeconfig: str = ""
    """Path of a kubeconfig. Empty: the service account inside a pod, else what kubectl takes
    (``KUBECONFIG``, then ``~/.kube/config``)."""
    context: str = ""
    """Context in the kubeconfig. Empty: its current one."""
    concurrency: int = 64
    """Requests in flight at once; watches do not count. An API server on 2 cores is busy with 32,
    and its fairness queues hold back a client with hundreds."""
    connect_timeout_s: float = 5.0
    """Seconds until a connection must stand: on one network this takes milliseconds."""
    request_timeout_s: float = 30.0
    """Seconds for one answer, or one page of a list: a write may wait 10 s for each webhook."""
    watch_timeout_s: int = 300
    """Seconds after which the server ends a watch (spread up to twice that, so that watches of
    many clients do not come back together). Ended watches resume; what client-go asks for too."""
    silence_timeout_s: float = 120.0
    """Seconds without a byte after which a watch counts as broken: bookmarks come each minute."""
