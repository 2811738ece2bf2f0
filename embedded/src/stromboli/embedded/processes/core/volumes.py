"""Contents of a pod's volumes and their mount points in containers."""

import posixpath
from collections.abc import Iterator, Mapping

import msgspec

from stromboli.embedded.processes.core import environment
from stromboli.embedded.processes.core import pod as pods
from stromboli.shared.api import kinds

USUAL_MODE = 0o644


class File(msgspec.Struct, frozen=True):
    """A file below a volume's folder."""

    path: str
    content: bytes
    mode: int


class VolumeContent(msgspec.Struct, frozen=True, kw_only=True):
    """A volume: a path of the machine, or a folder with these initial files.

    ``is_given``: its files are from API objects (ConfigMap, Secret, downward API) and are
    read-only.
    """

    files: tuple[File, ...] = ()
    host: pods.HostPath | None = None
    is_given: bool = False


class VolumeMount(msgspec.Struct, frozen=True, kw_only=True):
    """A mount of a container. ``path``: below the volume; empty for the whole volume."""

    volume: str
    path: str
    target: str
    read_only: bool


def volume_contents(pod: pods.Pod, context: environment.PodContext) -> dict[str, VolumeContent]:
    """Return volume name -> content. Raises MissingError for an object that does not exist
    (yet).
    """
    return {volume.name: _content(pod, volume, context) for volume in pod.spec.volumes}


def volume_mounts(
    container: pods.Container, contents: Mapping[str, VolumeContent], known: Mapping[str, str]
) -> list[VolumeMount]:
    """Return the mounts of a container. Raises MissingError for an invalid volume or path."""
    container_mounts = []
    for mount in container.volume_mounts:
        if mount.name not in contents:
            raise environment.MissingError(f"the pod has no volume {mount.name}")
        path = environment.expand(mount.sub_path_expr, known) or mount.sub_path
        if path and _escapes_folder(path):
            raise environment.MissingError(f"subPath {path!r} points outside volume {mount.name}")
        container_mounts.append(
            VolumeMount(
                volume=mount.name,
                path=path,
                target=posixpath.normpath(posixpath.join("/", mount.mount_path)),
                read_only=mount.read_only or contents[mount.name].is_given,
            )
        )
    return container_mounts


def _content(pod: pods.Pod, volume: pods.Volume, context: environment.PodContext) -> VolumeContent:
    if volume.host_path is not None:
        return VolumeContent(host=volume.host_path)
    if volume.empty_dir is not None:
        return VolumeContent()
    if volume.projected is not None:
        mode = _or(volume.projected.default_mode, USUAL_MODE)
        files: list[File] = []
        for source in volume.projected.sources:
            files += _files(
                pod, source.config_map, source.secret, source.downward_api, mode, context
            )
    else:
        files = list(
            _files(pod, volume.config_map, volume.secret, volume.downward_api, USUAL_MODE, context)
        )
    for file in files:
        if _escapes_folder(file.path):
            raise environment.MissingError(f"{file.path!r} points outside volume {volume.name}")
    return VolumeContent(files=tuple(files), is_given=True)


def _files(
    pod: pods.Pod,
    config_map: pods.ConfigMapVolume | None,
    secret: pods.SecretVolume | None,
    downward: pods.DownwardVolume | None,
    mode: int,
    context: environment.PodContext,
) -> Iterator[File]:
    if config_map is not None:
        yield from _keys(kinds.CONFIG_MAPS.kind, config_map.name, config_map, mode, context)
    if secret is not None:
        name = secret.secret_name or secret.name
        yield from _keys(kinds.SECRETS.kind, name, secret, mode, context)
    if downward is not None:
        usual = _or(downward.default_mode, mode)
        for item in downward.items:
            text = _field(pod, item, context)
            yield File(item.path, text.encode(), _or(item.mode, usual))


def _keys(
    kind: str,
    name: str,
    volume: pods.ConfigMapVolume | pods.SecretVolume,
    mode: int,
    context: environment.PodContext,
) -> Iterator[File]:
    usual = _or(volume.default_mode, mode)
    data = context.objects.get((kind, name))
    if data is None:
        if volume.optional:
            return
        raise environment.MissingError(f"{kind} {name} does not exist")
    if not volume.items:
        yield from (File(key, value, usual) for key, value in sorted(data.items()))
        return
    for item in volume.items:
        if item.key in data:
            yield File(item.path, data[item.key], _or(item.mode, usual))
        elif not volume.optional:
            raise environment.MissingError(f"{kind} {name} has no key {item.key}")


def _field(pod: pods.Pod, item: pods.DownwardFile, context: environment.PodContext) -> str:
    if item.field_ref is not None:
        return environment.field(pod, item.field_ref.field_path, context.address)
    if item.resource_field_ref is not None:
        any_container = pod.spec.containers[0]
        return environment.resource(pod, any_container, item.resource_field_ref, context.machine)
    raise environment.MissingError(f"{item.path}: neither fieldRef nor resourceFieldRef is set")


def _escapes_folder(path: str) -> bool:
    return path.startswith("/") or ".." in path.split("/")


def _or(value: int | None, usual: int) -> int:
    return usual if value is None else value
