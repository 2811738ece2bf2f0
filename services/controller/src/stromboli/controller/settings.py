"""The settings of the controller: ``STROM_CONTROLLER_...``."""

import msgspec

from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.cluster.kubernetes import KubernetesSettings
from stromboli.shared.jobspec import data_sets
from stromboli.shared.jobspec.validation.queueing import queues
from stromboli.shared.leader_election import LeaseSettings


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the controller that also apply in embedded mode."""

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    """The controller manages only jobs whose schedulerName is one of these."""
    max_queue_depth: int = queues.MAX_DEPTH
    """Maximum depth of queues below the root; a deeper queue gets a Warning. Use the same value as
    for admission."""
    instance: str = "controller"
    """Name of this process in its epoch record."""
    max_inflight_requests: int = 64
    """Concurrent requests to the API server. 32 requests keep a server on two cores busy; beyond 64
    they queue in the server instead of here, where the job with the fewest requests goes first."""
    max_inflight_decisions: int = 256
    """Maximum number of decisions in flight: enough that a few slow gangs delay no others, few
    enough that a restart repeats little."""
    preparation_s: float = 600.0
    """Deadline for binding the claims of a gang's pods, after which the decision fails: as in
    Kubernetes' scheduler, since some volumes take minutes to provision."""
    max_inflight_reconciles: int = 128
    """Concurrent reconciles: twice the concurrent requests, so that some can wait for the log while
    others write."""
    bound_pods: bool = True
    """Create the pods of a gang with their nodes if the gang fits idle nodes when it is admitted:
    one write per pod instead of two. If off, every pod is created pending and bound later. Without
    the ValidatingAdmissionPolicy ``pod-annotations.stromboli.sh``, which the chart ``base``
    installs, it has no effect, and a line in the log gives the reason."""
    deterministic_webhooks: tuple[str, ...] = ()
    """Names of mutating webhooks and MutatingAdmissionPolicies that change equal pods equally. Pods
    that match any other webhook or policy are not created with their nodes."""
    scheduled_events_per_s: float = 50.0
    """Rate limit of ``Scheduled`` Events of pods, per second. They have the lowest priority, and
    the oldest are dropped when too many wait. With 0 none is written."""
    sync_max_age_s: float = 30.0
    """Maximum age of the monitor's newest sync marker, beyond which reconciling pauses: ten
    markers, so that a restart of the monitor has no effect."""
    tools_domain: str = ""
    """Domain of debug tools: ``<tool>-<job>-<namespace>.<domain>``, by an Ingress of the cluster's
    default class. Empty: the tools are reachable only from inside the cluster or through a
    port-forward."""
    data_root: str = data_sets.DEFAULT_ROOT
    """Directory of a node in which its cache stores copies of data sets; pods mount them from
    there. Use the same value for the caches."""
    network_file: str = ""
    """File with the sources of HyperNodes: ``networkTopologyDiscovery`` as in Volcano's
    ``volcano-controller.conf``. Empty: no HyperNodes are created."""
    stop_within_s: float = 8.0
    """Time for work in flight at shutdown, in seconds: below the 10 s that a process has to
    stop."""


class Settings(ControllerSettings, frozen=True, kw_only=True):
    """Settings of the controller as a separate process."""

    kafka: KafkaSettings = KafkaSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    lease: LeaseSettings = LeaseSettings()
    health_host: str = "0.0.0.0"
    health_port: int = 8483
    """Port of ``/livez``, ``/readyz`` and ``/metrics``; 0 selects a free port."""
