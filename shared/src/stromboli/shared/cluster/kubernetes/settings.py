"""Settings of the API server connection: ``STROM_KUBERNETES_...`` in every service."""

import msgspec


class KubernetesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the API server, timeouts and limits."""

    kubeconfig: str = ""
    """Path of a kubeconfig. Empty: the service account inside a pod, else kubectl's default
    (``KUBECONFIG``, then ``~/.kube/config``).
    """
    context: str = ""
    """Context in the kubeconfig. Empty: its current context."""
    concurrency: int = 64
    """Concurrent requests, not counting watches. 32 keep an API server on 2 cores busy, and its
    priority and fairness queues throttle a client with hundreds.
    """
    connect_timeout_s: float = 5.0
    """Seconds within which a connection must be established; within a network this takes
    milliseconds."""
    request_timeout_s: float = 30.0
    """Seconds within which a response, or a page of a list, must arrive: a write may wait 10 s for
    each webhook."""
    watch_timeout_s: int = 300
    """Minimum seconds after which the server ends a watch; the actual time is random, up to twice
    as long, so that the watches of many clients do not reconnect together. Ended watches are
    resumed. The same as in client-go.
    """
    silence_timeout_s: float = 120.0
    """Seconds without data after which a watch counts as broken: bookmarks arrive every minute."""
