"""A Deployment's pod as a process of this machine, with its command, environment and files.

What exists only in a cluster is replaced: addresses and mount paths. The settings are the chart's,
under the chart's names.
"""

import base64
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

from stromboli.testkit.parts import kubernetes, ports
from stromboli.testkit.parts.part import Part
from tests.charts.support.helm import Object, the_only
from tests.images.support import image_build

_SETTINGS = {"webhooks": "webhook"}
"""Ports whose settings have another name."""


class Pod(Part):
    """The one container of a Deployment among ``objects``, which hold what it mounts, too.

    ``environment`` is laid over the Deployment's.
    """

    def __init__(
        self,
        service: str,
        objects: Sequence[Object],
        state: Path,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(state)
        self.name = service  # type: ignore[misc]  # one class serves for all of them
        self._objects = objects
        self.deployment = the_only(objects, "Deployment", f"-{service}")
        pod = self.deployment["spec"]["template"]["spec"]
        (self._container,) = pod["containers"]
        self._volumes = {each["name"]: each for each in pod["volumes"]}
        self._over = environment
        self.port_names = [each["name"] for each in self._container["ports"]]
        self.port_count = len(self.port_names)  # type: ignore[misc]  # as above

    def port(self, name: str) -> int:
        """Where it serves what its chart calls so."""
        return self.ports[self.port_names.index(name)]

    async def prepare(self) -> None:
        """Write what it mounts."""
        for mount in self._container["volumeMounts"]:
            folder = self._folder(mount["mountPath"])
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in self._content(self._volumes[mount["name"]]).items():
                (folder / name).write_bytes(content)

    def _folder(self, path: str) -> Path:
        return self.state / "files" / path.lstrip("/")

    def _content(self, volume: Object) -> dict[str, bytes]:
        if "secret" in volume:
            secret = self._named("Secret", volume["secret"]["secretName"])
            return {name: base64.b64decode(it) for name, it in secret.get("data", {}).items()}
        if "configMap" in volume:
            found = self._named("ConfigMap", volume["configMap"]["name"])
            return {name: text.encode() for name, text in found["data"].items()}
        return {}

    def _named(self, kind: str, name: str) -> Object:
        (found,) = (
            each
            for each in self._objects
            if each["kind"] == kind and each["metadata"]["name"] == name
        )
        return found

    def command(self) -> list[str]:
        """That of the container, else of the service's image."""
        words: list[str] = self._container.get("command") or _entrypoint(self.name)
        return [sys.executable if word == "python" else word for word in words]

    def environment(self) -> dict[str, str]:
        """The container's."""
        own = {each["name"]: self._value(each) for each in self._container["env"]}
        prefix = f"STROM_{self.name.upper()}_"
        served = {
            f"{prefix}{_SETTINGS.get(name, name).upper()}_PORT": str(self.port(name))
            for name in self.port_names
        }
        return {**_image_environment(self.name), **own, **served, **self._over}

    def _value(self, entry: Object) -> str:
        if "value" in entry:
            return self._below(entry["value"])
        source = entry["valueFrom"]
        if "fieldRef" in source:
            fields = {"metadata.name": f"{self.deployment['metadata']['name']}-0"}
            return fields[source["fieldRef"]["fieldPath"]]
        reference = source["secretKeyRef"]
        secret = self._named("Secret", reference["name"])
        return base64.b64decode(secret["data"][reference["key"]]).decode()

    def _below(self, text: str) -> str:
        """With mounted paths where they are here."""
        mounts = [each["mountPath"] for each in self._container["volumeMounts"]]
        for path in mounts:
            text = re.sub(rf"^{re.escape(path)}(?=/|$)", str(self._folder(path)), text)
        return text

    async def is_ready(self) -> bool:
        """The result of its readiness probe."""
        return await self.passes("readinessProbe")

    async def passes(self, probe: str) -> bool:
        """Whether one of its probes passes now."""
        requested = self._container[probe]["httpGet"]
        return await kubernetes.answers_ok(
            f"http://{ports.LOOPBACK}:{self.port(requested['port'])}{requested['path']}"
        )

    async def why_not(self) -> str:
        """The reasons in its ``/readyz``."""
        url = f"http://{ports.LOOPBACK}:{self.port('health')}/readyz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()


def _entrypoint(service: str) -> list[str]:
    (step,) = (each for each in image_build.dockerfile(service) if each.instruction == "ENTRYPOINT")
    return [word.strip('" ') for word in step.value.strip("[]").split(",")]


def _image_environment(service: str) -> dict[str, str]:
    """Variables of the final stage; those of earlier stages are not in the image."""
    steps = image_build.dockerfile(service)
    final = max(number for number, step in enumerate(steps) if step.instruction == "FROM")
    pairs = (step.value.partition("=") for step in steps[final:] if step.instruction == "ENV")
    return {name: value for name, _, value in pairs if name != "PATH"}
