"""The fields of a pod that a node reads, of Kubernetes 1.34's ``core/v1``."""

from datetime import datetime
from typing import Any

import msgspec

from stromboli.shared import decoding
from stromboli.shared.api.core import ResourceRequirements
from stromboli.shared.api.meta import ObjectMeta, Part


class KeySelector(Part, frozen=True, kw_only=True):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldSelector(Part, frozen=True, kw_only=True):
    """A field of the pod itself."""

    field_path: str = ""


class ResourceSelector(Part, frozen=True, kw_only=True):
    """An amount of a container's resource, in units of ``divisor``."""

    container_name: str = ""
    resource: str = ""
    divisor: str | int | float = "0"


class ValueFrom(Part, frozen=True, kw_only=True):
    """The source of a variable's value."""

    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class Variable(Part, frozen=True, kw_only=True):
    """An environment variable of a container."""

    name: str
    value: str = ""
    value_from: ValueFrom | None = None


class Source(Part, frozen=True, kw_only=True):
    """A reference to a whole ConfigMap or Secret."""

    name: str = ""
    optional: bool = False


class Variables(Part, frozen=True, kw_only=True):
    """All keys of an object as variables."""

    prefix: str = ""
    config_map_ref: Source | None = None
    secret_ref: Source | None = None


class Mount(Part, frozen=True, kw_only=True):
    """A volume at a path of a container."""

    name: str
    mount_path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class Exec(Part, frozen=True, kw_only=True):
    """A probe or hook that runs a command in the container."""

    command: tuple[str, ...] = ()


class HttpGet(Part, frozen=True, kw_only=True):
    """A probe or hook that sends an HTTP request, by default to the pod's address."""

    port: int | str
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"


class TcpSocket(Part, frozen=True, kw_only=True):
    """A probe or hook that opens a TCP connection, by default to the pod's address."""

    port: int | str
    host: str = ""


class Handler(Part, frozen=True, kw_only=True):
    """The action of a probe or hook: one of the fields is set."""

    exec: Exec | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None


class Probe(Handler, frozen=True, kw_only=True):
    """A periodic check of a container."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Hooks(Part, frozen=True, kw_only=True):
    """Lifecycle hooks of a container."""

    post_start: Handler | None = None
    pre_stop: Handler | None = None


class Port(Part, frozen=True, kw_only=True):
    """A port by name, for probes."""

    container_port: int = 0
    name: str = ""


class Container(Part, frozen=True, kw_only=True):
    """A container of the pod."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[Variable, ...] = ()
    env_from: tuple[Variables, ...] = ()
    ports: tuple[Port, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    volume_mounts: tuple[Mount, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Hooks = Hooks()
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"

    @property
    def is_sidecar(self) -> bool:
        """Return whether this init container keeps running beside the main containers."""
        return self.restart_policy == "Always"


class Item(Part, frozen=True, kw_only=True):
    """A key of a ConfigMap or Secret as a file at a path of the volume."""

    key: str
    path: str
    mode: int | None = None


class ConfigMapVolume(Part, frozen=True, kw_only=True):
    """Keys of a ConfigMap as files."""

    name: str = ""
    items: tuple[Item, ...] | None = None
    default_mode: int | None = None
    optional: bool = False


class SecretVolume(Part, frozen=True, kw_only=True):
    """Keys of a Secret as files; in a projected volume it has a ``name`` like the others."""

    secret_name: str = ""
    name: str = ""
    items: tuple[Item, ...] | None = None
    default_mode: int | None = None
    optional: bool = False


class DownwardFile(Part, frozen=True, kw_only=True):
    """A field of the pod, or an amount of a resource, as a file."""

    path: str
    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceSelector | None = None
    mode: int | None = None


class DownwardVolume(Part, frozen=True, kw_only=True):
    """A downward API volume: fields of the pod as files."""

    items: tuple[DownwardFile, ...] = ()
    default_mode: int | None = None


class Projection(Part, frozen=True, kw_only=True):
    """One source of a projected volume."""

    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")


class ProjectedVolume(Part, frozen=True, kw_only=True):
    """A projected volume: several sources in one folder."""

    sources: tuple[Projection, ...] = ()
    default_mode: int | None = None


class HostPath(Part, frozen=True, kw_only=True):
    """A hostPath volume: a path of this machine."""

    path: str
    type: str = ""


class Volume(Part, frozen=True, kw_only=True):
    """A volume of a supported kind; if no field is set, the kind is unsupported."""

    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    empty_dir: dict[str, Any] | None = None
    host_path: HostPath | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedVolume | None = None


class HostAlias(Part, frozen=True, kw_only=True):
    """Additional names in the hosts file."""

    ip: str
    hostnames: tuple[str, ...] = ()


class Spec(Part, frozen=True, kw_only=True):
    """The pod's spec."""

    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    service_account_name: str = ""
    restart_policy: str = "Always"
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    host_aliases: tuple[HostAlias, ...] = ()
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None


class Running(Part, frozen=True, kw_only=True):
    """A running container state."""

    started_at: datetime | None = None


class Terminated(Part, frozen=True, kw_only=True):
    """A terminated container state."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Waiting(Part, frozen=True, kw_only=True):
    """A waiting container state."""

    reason: str = ""
    message: str = ""


class State(Part, frozen=True, kw_only=True):
    """A container state: exactly one field is set."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True, kw_only=True):
    """The published status of a container."""

    name: str
    restart_count: int = 0
    state: State = State()
    last_state: State = State()


class Status(Part, frozen=True, kw_only=True):
    """The published status of the pod."""

    phase: str = ""
    reason: str = ""
    start_time: datetime | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[dict[str, Any], ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Metadata(ObjectMeta, frozen=True, kw_only=True):
    """Metadata of a pod, including its grace period during deletion."""

    deletion_grace_period_seconds: int | None = None


class Pod(Part, frozen=True, kw_only=True):
    """A pod bound to one of our nodes."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def containers(self) -> tuple[Container, ...]:
        """Return init containers, then main containers."""
        return (*self.spec.init_containers, *self.spec.containers)

    @property
    def hostname(self) -> str:
        """Return the pod's host name; a pod name is cut to 63 characters, as by a kubelet."""
        return self.spec.hostname or self.metadata.name[:63].rstrip("-.")


Document = dict[str, Any]


def read(raw: bytes) -> tuple[Pod, Document]:
    """Decode a pod; return it and its whole document, where null means absent. Raises
    msgspec.DecodeError.
    """
    document = _without_nulls(decoding.from_json(raw, Document))
    return decoding.convert(document, Pod), document


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value if each is not None]
    return value
