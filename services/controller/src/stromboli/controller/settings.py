"""All settings of the controller: ``STROM_CONTROLLER_...``."""

import msgspec

from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.cluster.kubernetes import KubernetesSettings
from stromboli.shared.jobspec.validation import queues
from stromboli.shared.leader_election import LeaseSettings


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller itself needs, embedded or not."""

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    """We act only on jobs whose schedulerName is one of these."""
    max_queue_depth: int = queues.MAX_DEPTH
    """A queue more levels below the root than this came past admission and is told so by an Event.
    Admission's ought to be the same."""
    instance: str = "controller"
    """Names this process in its epoch record."""
    max_inflight_requests: int = 64
    """Requests to the API server in flight. One server on two cores is busy with 32; more than 64
    only wait there instead of here, where the job that had fewest goes first."""
    max_inflight_decisions: int = 256
    """Decisions being executed at once: enough that a few slow gangs hold nobody up, few enough
    that a restart repeats little."""
    preparation_s: float = 600.0
    """How long the claims of a gang's pods may take to be bound before the decision is given up:
    what Kubernetes' scheduler allows, since some volumes are made in minutes."""
    max_inflight_reconciles: int = 128
    """Jobs, PodGroups and queues being reconciled at once: twice the writes, so that some can
    wait for the log while others write."""
    scheduled_events_per_s: float = 50.0
    """Events a second that say that pods were scheduled: they are written behind everything else,
    and the oldest are dropped when too many wait. 0 writes none."""
    sync_max_age_s: float = 30.0
    """How old the monitor's newest sign of life may be before nothing is decided any more: ten
    beats, so that a restarted monitor is not noticed."""
    tools_domain: str = ""
    """Tools beside jobs are reached from outside at ``<tool>-<job>-<namespace>.<domain>``, by an
    Ingress of the cluster's default class; none: only inside the cluster, as by a port-forward."""
    network_file: str = ""
    """Where HyperNodes come from: a file with ``networkTopologyDiscovery`` as the reference's
    controller reads it (``volcano-controller.conf``); none: nobody makes them."""
    stop_within_s: float = 8.0
    """What begun work may take at the end: below the 10 s a process has to stop."""


class Settings(ControllerSettings, frozen=True, kw_only=True):
    """The service as a process of its own."""

    kafka: KafkaSettings = KafkaSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    lease: LeaseSettings = LeaseSettings()
    health_host: str = "0.0.0.0"
    health_port: int = 8483
    """Port of ``/livez``, ``/readyz`` and ``/metrics``; 0 takes a free one."""
