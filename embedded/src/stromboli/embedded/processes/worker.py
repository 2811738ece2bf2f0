"""One pod on its node: executes the actions of ``core.lifecycle`` and publishes the pod's status.

One loop receives events and decides. Each run and each probe is a task that reports an event.
Cancelling the loop kills all processes of the pod.
"""

import asyncio
import contextlib
import functools
import glob
import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from stromboli.embedded.processes import launcher_client, pod_usage, probes
from stromboli.embedded.processes.core import (
    addresses,
    data_volumes,
    environment,
    image_files,
    isolation,
    lifecycle,
    status,
    unsupported_fields,
    volumes,
)
from stromboli.embedded.processes.core import pod as pods
from stromboli.embedded.processes.data_caches import DataCaches
from stromboli.embedded.processes.disk import LOOKUP, PodFolder, may_enter
from stromboli.embedded.processes.launcher import isolated_root, segments
from stromboli.embedded.processes.launcher import main as launcher
from stromboli.embedded.processes.log_archive import LogArchive
from stromboli.embedded.processes.output import Output
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.formats import units
from stromboli.shared.runtime import runtime, telemetry

TAIL_BYTES, TAIL_LINES = 2048, 80
"""Limits of the output in a termination message, if the pod requests it."""
LEAST_AFTER_HOOK_S = 2.0
"""Minimum seconds between a preStop hook and SIGKILL."""
COMPONENT = "stromboli-process-node"


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """Values shared by all pods of a node.

    ``view``: what containers see of the machine: ``root`` and ``user`` in namespaces, ``plain``
    without. ``base``: base environment of containers. ``machine``: amounts available to containers
    without limits. ``lookup``: an ``nsswitch.conf`` if the machine's does not list files first.
    ``hosts`` returns the hosts file of a pod. ``image_runtime``: runs containers from image files,
    if one is installed. ``caches``: the caches of data sets. ``visible``: the paths of the machine
    that isolated containers see; None if containers are not isolated.
    """

    cluster: cluster_port.Cluster
    folder: Path
    clock: runtime.Clock
    health: runtime.Health
    view: str
    base: Mapping[str, str]
    machine: units.Amounts
    lookup: str | None
    hosts: Callable[[pods.Pod, str], str]
    image_runtime: image_files.ImageRuntime | None = None
    caches: DataCaches | None = None
    visible: tuple[str, ...] | None = None


class PodWorker:
    """Runs the containers of one pod and reports their status."""

    def __init__(
        self, pod: pods.Pod, document: pods.Document, address: str, around: NodeContext
    ) -> None:
        self.pod = pod
        self.address = address
        self._around = around
        self._folder = PodFolder(around.folder / pod.metadata.uid)
        self.usage = pod_usage.PodUsage(around.clock())
        self._life = lifecycle.PodLifecycle(pod, around.clock())
        self._unheeded = unsupported_fields.unsupported_paths(
            document, at_true_paths=around.view != "plain"
        )
        self._events: asyncio.Queue[lifecycle.Event] = asyncio.Queue()
        self._launched: dict[str, launcher_client.ContainerProcess] = {}
        self._outputs: dict[str, Output] = {}
        self._stops: dict[str, float] = {}
        self._hooked: set[str] = set()
        self._is_laid = False
        self._conditions = {str(each.get("type")): each for each in pod.status.conditions}
        self._written: status.Document = {}
        self._said: set[str] = set()

    async def run(self) -> None:
        """Run the pod until it is removed."""
        self._folder.make(self._around.hosts(self.pod, self.address), self._around.lookup)
        async with asyncio.TaskGroup() as group:
            has_runtime = self._around.image_runtime is not None
            if obstacle := unsupported_fields.blocking_field(self.pod, runs_images=has_runtime):
                self._events.put_nowait(lifecycle.NodeUnsuitable("NotSupported", obstacle))
            self._events.put_nowait(lifecycle.TimePassed())
            if fields := ", ".join(self._unheeded):
                message = f"not supported on this node and ignored: {fields}"
                group.create_task(self._say("Unheeded", message))
            while not (self._life.is_over and self._life.is_deleted):
                event = await self._next()
                for action in self._life.handle(event, self._around.clock()):
                    group.create_task(self._act(action))
                if self._events.empty():
                    await self._tell()
            await self._remove()

    def see(self, pod: pods.Pod) -> None:
        """Update the pod object: it may be terminating, and other clients may have written its
        status."""
        if not self._written:
            self._conditions = {str(each.get("type")): each for each in pod.status.conditions}
        ours = {str(each["type"]) for each in self._written.get("conditions", ())}
        for each in pod.status.conditions:
            if each.get("type") not in ours:
                self._conditions[str(each.get("type"))] = each
        if pod.metadata.deletion_timestamp is not None:
            grace_s = pod.metadata.deletion_grace_period_seconds
            usual_s = pod.spec.termination_grace_period_seconds
            self._events.put_nowait(lifecycle.Deleted(usual_s if grace_s is None else grace_s))

    def rename(self) -> None:
        """Rewrite the hosts file after pods were added or removed."""
        if self._folder.hosts.exists():
            self._folder.write_hosts(self._around.hosts(self.pod, self.address))

    async def refresh(self, kind: str, name: str) -> None:
        """Update volumes after a change of a ConfigMap or Secret; environment variables do not
        change. Content that no longer exists is kept.
        """
        if self._is_laid and (kind, name) in environment.referenced_objects(self.pod):
            with contextlib.suppress(environment.MissingError, OSError):
                context = environment.PodContext(
                    await self._objects(), self.address, self._around.machine
                )
                self._folder.lay(self._contents(context))

    def clear(self, archive: LogArchive) -> None:
        """Delete the pod's folder after its loop ended; its output moves to the archive."""
        if self._folder.path.exists():
            pod = self.pod.metadata
            archive.archive(self._folder, pod.namespace, pod.name, pod.uid)
            self._folder.remove()

    def output(self, query: cluster_port.LogQuery) -> Output:
        """Return a container's output. Raises InvalidError if there is none."""
        what = f"read the log of Pod {self.pod.metadata.key}, container {query.container}"
        runs = self._folder.runs(query.container)
        if not runs or (query.previous and len(runs) < 2):
            reason = "it has not been restarted" if runs else "it has not started yet"
            raise errors.InvalidError(what, reason)
        if query.previous:
            return Output(self._folder.log(query.container, runs[-2]), is_over=True)
        kept = Output(self._folder.log(query.container, runs[-1]), is_over=True)
        return self._outputs.get(query.container, kept)

    def process(self, container: str) -> launcher_client.ContainerProcess:
        """Return the process of a container. Raises InvalidError if it is not running."""
        process = self._launched.get(container)
        if process is None:
            what = f"run a command in Pod {self.pod.metadata.key}"
            raise errors.InvalidError(what, f"container {container} is not running")
        return process

    # --- the loop --------------------------------------------------------------------------

    async def _next(self) -> lifecycle.Event:
        wake_at = self._life.wake_at
        if wake_at is None:
            return await self._events.get()
        left_s = (wake_at - self._around.clock()).total_seconds()
        try:
            async with asyncio.timeout(max(left_s, 0.0)):
                return await self._events.get()
        except TimeoutError:
            return lifecycle.TimePassed()

    async def _act(self, action: lifecycle.Action) -> None:
        match action:
            case lifecycle.Start(name, run):
                self._stops.pop(name, None)
                self._hooked.discard(name)
                self._events.put_nowait(await self._run(self._container(name), run))
            case lifecycle.Stop(name, grace_s):
                await self._stop(self._container(name), grace_s)
            case lifecycle.RunProbe(name, kind):
                container = self._container(name)
                probe = lifecycle.probes(container)[kind]
                is_good, message = await probes.run_probe(
                    probe, container, self.address, self._launched.get(name)
                )
                if not is_good:
                    await self._say("Unhealthy", f"{name}: {kind} probe failed: {message}")
                self._events.put_nowait(lifecycle.ProbeAnswered(name, kind, is_good, message))

    async def _run(self, container: pods.Container, run: int) -> lifecycle.Event:
        """Execute one run, from preparation to end."""
        name = container.name
        try:
            spec = await self._prepare(container, run)
            if name in self._stops:
                return lifecycle.Refused(name, "Stopped", "stopped before it started")
            output = self._outputs[name] = Output(self._folder.log(name, run))
            process = await launcher_client.start_container(spec, output, self.pod.metadata.uid)
        except image_files.MissingImageError as error:
            await self._say("Failed", f"{name}: {error}")
            return lifecycle.Refused(name, "ErrImagePull", str(error))
        except environment.MissingDataError as error:
            await self._say("FailedMount", f"{name}: {error}")
            # A kubelet, too, waits for the directory: this is no error of the container.
            return lifecycle.Refused(name, "ContainerCreating", str(error))
        except (environment.MissingError, ValueError) as error:
            await self._say("FailedMount", f"{name}: {error}")
            return lifecycle.Refused(name, "CreateContainerConfigError", str(error))
        except OSError as error:
            await self._say("FailedMount", f"{name}: {_without_errno(error)}")
            return lifecycle.Refused(name, "CreateContainerError", _without_errno(error))
        self._launched[name] = process
        self.usage.begin(name, process)
        if name in self._stops:
            process.stop(self._stops[name])
        try:
            outcome = await process.events(lambda: self._events.put_nowait(lifecycle.Started(name)))
        finally:
            del self._launched[name]
        return await self._ended(container, run, outcome)

    async def _ended(
        self, container: pods.Container, run: int, outcome: launcher_client.Outcome
    ) -> lifecycle.Ended:
        name = container.name
        if outcome.refused:
            await self._say("Failed", f"{name}: {outcome.refused}")
            return lifecycle.Ended(name, outcome.exit_code, "StartError", outcome.refused)
        message = self._folder.message(name)
        wants_tail = container.termination_message_policy == "FallbackToLogsOnError"
        if not message and outcome.exit_code and wants_tail:
            output = Output(self._folder.log(name, run), is_over=True)
            message = await asyncio.to_thread(output.tail, TAIL_BYTES, TAIL_LINES)
        if outcome.is_out_of_memory:
            limit = (container.resources.limits or {}).get("memory")
            message = message or f"the container used more memory than its limit of {limit}"
            await self._say("OOMKilled", f"{name}: {message}")
            return lifecycle.Ended(name, outcome.exit_code, "OOMKilled", message)
        if outcome.lost_bytes:
            await self._say("LogLost", f"{name}: the disk rejected {outcome.lost_bytes} bytes")
        return lifecycle.Ended(name, outcome.exit_code, message=message)

    async def _stop(self, container: pods.Container, grace_s: float) -> None:
        name = container.name
        current = self._launched.get(name)
        hook = container.lifecycle.pre_stop
        if current is not None and hook is not None and hook.exec and name not in self._hooked:
            self._hooked.add(name)
            began = asyncio.get_running_loop().time()
            is_good, message = await current.execute(hook.exec.command, grace_s)
            if not is_good:
                await self._say("FailedPreStopHook", f"{name}: {message}")
            grace_s -= asyncio.get_running_loop().time() - began
            grace_s = max(grace_s, LEAST_AFTER_HOOK_S)
            if self._launched.get(name) is not current:
                return
        self._stops[name] = grace_s
        if (current := self._launched.get(name)) is not None:
            current.stop(grace_s)

    # --- preparing -------------------------------------------------------------------------

    async def _prepare(self, container: pods.Container, run: int) -> launcher.Spec:
        """Return the launcher's spec. Raises MissingError, MissingImageError, OSError."""
        around, image = self._around, self._image(container)
        context = environment.PodContext(await self._objects(), self.address, around.machine)
        contents = self._contents(context)
        if not self._is_laid:
            self._folder.lay(contents)
            self._is_laid = True
        isolated = around.visible is not None and not image
        base = {} if image else isolation.base(around.base) if isolated else around.base
        variables = environment.variables(self.pod, container, context, base)
        mounts = [
            {
                "source": str(self._folder.source(place, contents[place.volume])),
                "target": place.target,
                "read_only": place.read_only,
            }
            for place in volumes.volume_mounts(container, contents, variables)
        ]
        mounts += self._own_mounts(container)
        home = isolation.home_of(variables)
        if isolated:
            mounts += self._own_folders(container, home)
        directory = environment.submit_directory(self.pod, mounts, may_enter)
        limit = (container.resources.limits or {}).get("memory")
        spec = launcher.Spec(
            command=environment.command(container, variables),
            entry=[],
            environment={**variables, **self._own_variables()},
            working_directory=container.working_dir or (home if isolated else directory),
            log=str(self._folder.begin_log(container.name, run)),
            keep_bytes=segments.KEEP_BYTES,
            memory_bytes=units.amount("memory", limit) if limit is not None else 0,
            view=None,
        )
        if image:
            self._use_image(spec, container, mounts)
            mounts = []
        if around.view != "plain":
            spec["view"] = launcher.ContainerView(
                folder=str(self._folder.root(container.name)),
                mounts=mounts,
                hostname=self.pod.hostname,
                as_root=around.view == "root",
                isolation=self._isolation(container) if isolated else None,
            )
        elif not image:
            pairs = [(Path(str(each["source"])), str(each["target"])) for each in mounts]
            root = str(self._folder.placeholder(container.name, pairs))
            spec["environment"]["STROM_POD_ROOT"] = root
        return spec

    def _contents(self, context: environment.PodContext) -> dict[str, volumes.VolumeContent]:
        """The pod's volumes, with the copies of data sets in this node's cache. Raises
        MissingError."""
        contents = volumes.volume_contents(self.pod, context)
        if (caches := self._around.caches) is None:
            return contents
        path_of = functools.partial(caches.path_of, self.pod.spec.node_name)
        return data_volumes.relocated(self.pod, contents, path_of)

    def _image(self, container: pods.Container) -> str:
        """Return the path of the container's image file, empty without one. Raises
        MissingImageError.
        """
        image = image_files.path_of(container.image)
        if image and not Path(image).exists():
            node = self.pod.spec.node_name
            raise image_files.MissingImageError(f"image file {image} does not exist on node {node}")
        return image

    def _own_variables(self) -> dict[str, str]:
        return {launcher_client.MARK: self.pod.metadata.uid, "STROM_POD_ROOT": ""}

    def _use_image(
        self, spec: launcher.Spec, container: pods.Container, mounts: list[dict[str, Any]]
    ) -> None:
        """Let a program for image files run the command, with the mounts of the pod."""
        runtime = self._around.image_runtime
        assert runtime is not None, "a pod with an image file needs a program for it"
        scratch = str(self._folder.scratch(container.name))
        options = image_files.options(runtime, container, mounts, scratch, self._around.view)
        spec["entry"] = image_files.entry(runtime, container, options)
        spec["command"] = image_files.command_line(runtime, container, options, spec["command"])
        own = image_files.variables(runtime, spec["environment"])
        # The program's own processes need the pod's mark, too.
        spec["environment"] = {**self._around.base, **self._own_variables(), **own}
        spec["working_directory"] = "/"

    def _own_mounts(self, container: pods.Container) -> list[dict[str, Any]]:
        message = self._folder.begin_message(container.name)
        files = [(self._folder.hosts, "/etc/hosts"), (message, container.termination_message_path)]
        if self._around.lookup is not None:
            files.append((self._folder.lookup, str(LOOKUP)))
        mounted = {mount.mount_path for mount in container.volume_mounts}
        return [
            {"source": str(source), "target": target, "read_only": False}
            for source, target in files
            if target not in mounted
        ]

    def _own_folders(self, container: pods.Container, home: str) -> list[dict[str, Any]]:
        """The mounts of an isolated container's private folders, which are empty in each run."""
        scratch = self._folder.scratch(container.name)
        mounted = {mount.mount_path for mount in container.volume_mounts}
        folder_mounts = []
        for target, name in isolation.folders(home, mounted).items():
            source = scratch / name
            source.mkdir()
            if name != isolation.HOME:
                source.chmod(0o1777)
            folder_mounts.append({"source": str(source), "target": target, "read_only": False})
        return folder_mounts

    def _isolation(self, container: pods.Container) -> isolated_root.Isolation:
        device_paths = {path for each in isolation.devices(container) for path in glob.glob(each)}
        visible = list(self._around.visible or ())
        return isolated_root.Isolation(visible=visible, devices=sorted(device_paths))

    async def _objects(self) -> environment.Objects:
        """Return the existing ConfigMaps and Secrets that the pod references."""
        objects = {}
        for kind_name, name in environment.referenced_objects(self.pod):
            kind = kinds.SECRETS if kind_name == kinds.SECRETS.kind else kinds.CONFIG_MAPS
            read = functools.partial(
                self._around.cluster.get, kind, self.pod.metadata.namespace, name
            )
            with contextlib.suppress(errors.NotFoundError):
                raw = await runtime.retry_until_available(read, "cluster", self._around.health)
                objects[kind_name, name] = probes.decode_data(raw, is_secret=kind is kinds.SECRETS)
        return objects

    # --- status and Events -----------------------------------------------------------------

    async def _tell(self) -> None:
        """Write the status if it has changed, unless another pod of the same name has replaced the
        pod."""
        before, now = list(self._conditions.values()), self._around.clock()
        new_status = status.pod_status(self._life, self.address, self._unheeded, before, now)
        if new_status == self._written:
            return
        meta = self.pod.metadata
        patch = msgspec.json.encode({"metadata": {"uid": meta.uid}, "status": new_status})
        write = functools.partial(
            self._around.cluster.patch,
            kinds.PODS,
            meta.namespace,
            meta.name,
            patch,
            patch_type="merge",
            subresource="status",
        )
        with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
            await runtime.retry_until_available(write, "cluster", self._around.health)
        self._written = new_status
        self._conditions = {str(each["type"]): each for each in new_status["conditions"]}

    async def _say(self, reason: str, message: str) -> None:
        """Record a Kubernetes Event, once per message. A failed write is ignored."""
        if (text := f"{reason} {message}") in self._said:
            return
        self._said.add(text)
        meta, at = self.pod.metadata, _text(self._around.clock())
        digest = hashlib.sha256(f"{meta.uid} {text}".encode()).hexdigest()[:16]
        body = {
            "apiVersion": kinds.EVENTS.api_version,
            "kind": kinds.EVENTS.kind,
            "metadata": {"name": f"{meta.name[:200]}.{digest}", "namespace": meta.namespace},
            "involvedObject": {
                "apiVersion": kinds.PODS.api_version,
                "kind": kinds.PODS.kind,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
            "type": "Warning",
            "reason": reason,
            "message": message[:1000],
            "count": 1,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": COMPONENT, "host": self.pod.spec.node_name},
        }
        try:
            await self._around.cluster.create(
                kinds.EVENTS, meta.namespace, msgspec.json.encode(body)
            )
        except errors.ExternalError as error:
            telemetry.log.info("event not written", pod=meta.key, text=text, error=str(error))

    async def _remove(self) -> None:
        """Delete the pod object once all its processes and files are removed."""
        meta = self.pod.metadata
        remove = functools.partial(
            self._around.cluster.delete,
            kinds.PODS,
            meta.namespace,
            meta.name,
            uid=meta.uid,
            grace_seconds=0,
        )
        with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
            await runtime.retry_until_available(remove, "cluster", self._around.health)

    def _container(self, name: str) -> pods.Container:
        return next(each for each in self.pod.containers if each.name == name)


def _without_errno(error: OSError) -> str:
    """``No such file or directory: /a/b``, without ``[Errno 2]``."""
    return ": ".join(filter(None, (error.strerror or str(error), str(error.filename or ""))))


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def named(pod: pods.Pod, address: str) -> addresses.PodAddress:
    """Return the pod's entry for the hosts files of other pods."""
    return addresses.PodAddress(pod.metadata.namespace, pod.hostname, pod.spec.subdomain, address)
