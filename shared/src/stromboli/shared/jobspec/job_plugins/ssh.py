"""Plugin ``ssh``: passwordless ssh logins between the pods of a job.

One key pair per job is stored in the Secret ``<job>-ssh``. It is created once and kept over
restarts; the host list in the Secret is updated when the job is scaled.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec.job_plugins import base, hosts
from stromboli.shared.jobspec.job_plugins.arguments import Value

USUAL_PATH = "/root/.ssh"
USUAL_PORT = 22
PRIVATE_KEY, PUBLIC_KEY, AUTHORIZED_KEYS, CONFIG = (
    "id_rsa",
    "id_rsa.pub",
    "authorized_keys",
    "config",
)


class Ssh(base.Plugin):
    """Creates a Secret with keys and configuration, and mounts it as ssh's configuration
    directory."""

    defaults: ClassVar[Mapping[str, Value]] = {
        "ssh-key-file-path": USUAL_PATH,
        "ssh-private-key": "",
        "ssh-public-key": "",
        "ssh-port": USUAL_PORT,
    }
    ports: ClassVar[Sequence[str]] = ("ssh-port",)

    def problem(self, arguments: Sequence[str]) -> str:
        """As in the base class; also reports an incomplete key pair."""
        message = super().problem(arguments)
        requested = self.argument_values(arguments)
        if not message and bool(requested["ssh-private-key"]) != bool(requested["ssh-public-key"]):
            message = "set both ssh-private-key and ssh-public-key, or neither"
        return message

    def objects(self, job: Job, arguments: Sequence[str]) -> Iterator[base.PluginObject]:
        """The Secret, with the keys from the arguments or generated ones."""
        requested = self.argument_values(arguments)
        data = {CONFIG: _config(job, requested["ssh-port"])}
        private, public = requested["ssh-private-key"], requested["ssh-public-key"]
        is_given = bool(private and public)
        if is_given:
            data |= {PRIVATE_KEY: private, PUBLIC_KEY: public, AUTHORIZED_KEYS: public}
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
        yield base.PluginObject(
            kind=kinds.SECRETS,
            name=secret_name(job),
            content={"data": encoded},
            follows=True,
            secret="" if is_given else "ssh-keys",
        )

    def mutate_pod(
        self, pod: base.Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Mount the files with suitable modes: ssh rejects a private key of root that others may
        read, while a container that runs as another user must be able to read it.
        """
        path = self.argument_values(arguments)["ssh-key-file-path"] or USUAL_PATH
        name = secret_name(job)
        items = [
            {"key": key, "path": f".ssh/{key}"}
            for key in (PRIVATE_KEY, PUBLIC_KEY, AUTHORIZED_KEYS, CONFIG)
        ]
        mode = 0o600 if path == USUAL_PATH else 0o644
        secret = {"secretName": name, "items": items, "defaultMode": mode}
        base.add_volume(pod, {"name": name, "secret": secret})
        for container in base.containers(pod):
            base.mount(container, name, path, subPath=".ssh")


def secret_name(job: Job) -> str:
    """The name of the Secret: ``<job>-ssh``."""
    return f"{job.metadata.name}-ssh"


def _config(job: Job, port: int) -> str:
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task in job.spec.tasks:
        for address in hosts.addresses(job, task):
            host = address.partition(".")[0]
            lines += [f"Host {host}", f"  HostName {address}", f"  Port {port}"]
    return "\n".join(lines) + "\n"
