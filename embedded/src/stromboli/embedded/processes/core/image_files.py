"""Command lines that run a container from an image file: a SIF file or a sandbox directory.

The options are those of Apptainer; SingularityCE has them, too. The container sees its image, the
pod's mounts and a minimal ``/dev``; ``/tmp``, ``/var/tmp`` and the home folder are in the pod's
folder. It shares processes, host name and network with its launcher. A further command (exec,
probe, hook) therefore runs in a second container of the same image with the same mounts, and sees
the processes of the first one.

Variables are passed in the program's own environment under a prefix, because values in options are
split at commas. Source: https://apptainer.org/docs/user/latest/environment_and_metadata.html.
"""

import csv
import io
import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stromboli.embedded.processes.core import pod as pods

PROGRAMS = ("apptainer", "singularity")
"""Programs that run image files and accept Apptainer's options, the preferred one first."""
SCHEME = "file://"
DEVICE_OPTIONS = (("nvidia.com/", "--nv"), ("amd.com/gpu", "--rocm"))
"""Prefix of an extended resource -> the option that adds its devices and libraries."""
TERMINATION_LOG = pods.Container(name="").termination_message_path
"""The default path of the termination message, which containers with an image file do not have."""
ROOT_CAPABILITIES = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD"),
    *("CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP"),
    *("CAP_SETPCAP", "CAP_SYS_CHROOT", "CAP_AUDIT_WRITE"),
)
"""The default capabilities of Kubernetes containers. For root the program would request all
capabilities, and no container would start on a node that lacks one, such as a node in a
container."""
_OPTIONS = ("--cleanenv", "--contain", "--ipc", "--no-eval")
"""Options that hide the machine except its devices, and pass values of variables unchanged."""


class MissingImageError(Exception):
    """The image file does not exist on this node; the message names it."""


class ImageRuntime(msgspec.Struct, frozen=True):
    """The installed program. ``path``: its absolute path; ``is_root``: whether root runs it."""

    path: str
    is_root: bool = False

    @property
    def variable_prefix(self) -> str:
        """Return the prefix of variables that are passed on to the container."""
        return f"{posixpath.basename(self.path).upper()}ENV_"


def path_of(image: str) -> str:
    """Return the absolute path that an image names: ``file:///shared/train.sif`` or the path
    itself; empty for an image of a registry.
    """
    path = image.removeprefix(SCHEME)
    return path if path.startswith("/") else ""


def options(
    runtime: ImageRuntime,
    container: pods.Container,
    mounts: Iterable[Mapping[str, Any]],
    scratch: str,
    view: str,
) -> list[str]:
    """Return the options of a container. ``scratch``: an existing folder for its temporary files;
    ``view``: see ``machine.view``.
    """
    runtime_options = [*_OPTIONS, "--workdir", scratch, "--cwd", container.working_dir or "/"]
    if runtime.is_root:
        runtime_options += ["--no-privs", "--add-caps", ",".join(ROOT_CAPABILITIES)]
    if view == "user":  # the launcher is root in its user namespace only, which mounts no images
        runtime_options.append("--userns")
    resources = {**(container.resources.requests or {}), **(container.resources.limits or {})}
    for prefix, option in DEVICE_OPTIONS:
        if any(name.startswith(prefix) for name in resources):
            runtime_options.append(option)
    for mount in mounts:
        if mount["target"] == TERMINATION_LOG:  # the minimal /dev takes no further mount points
            continue
        runtime_options += ["--mount", _mount(mount)]
    return runtime_options


def entry(
    runtime: ImageRuntime, container: pods.Container, runtime_options: list[str]
) -> list[str]:
    """Return the command that runs its arguments beside the container. ``runtime_options``: the
    result of ``options``."""
    return [runtime.path, "--silent", "exec", *runtime_options, path_of(container.image)]


def command_line(
    runtime: ImageRuntime, container: pods.Container, runtime_options: list[str], command: list[str]
) -> list[str]:
    """Return the command that starts the container. Without a command of its own, the image's run
    script gets the arguments.
    """
    if container.command:
        return [*entry(runtime, container, runtime_options), *command]
    return [runtime.path, "--silent", "run", *runtime_options, path_of(container.image), *command]


def variables(runtime: ImageRuntime, own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make the program set ``own`` in the container."""
    return {f"{runtime.variable_prefix}{name}": value for name, value in own.items()}


def _mount(mount: Mapping[str, Any]) -> str:
    """Return the value of ``--mount``: fields as in a CSV file, since paths may contain commas."""
    fields = ["type=bind", f"source={mount['source']}", f"destination={mount['target']}"]
    if mount["read_only"]:
        fields.append("ro")
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(fields)
    return written.getvalue()
