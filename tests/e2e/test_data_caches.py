"""Data sets on two process nodes: real bytes, through all services and back.

A job names a data set; the scheduler says which node should have it; the node's cache fetches it
and reports it by its digest; the pod starts when the copy is complete.
"""

import asyncio
import contextlib
import hashlib
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stromboli.embedded import state_folder, system
from stromboli.embedded.processes import machine
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import decoding, topics
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import data
from stromboli.testkit import records

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")

CONFIGURATION = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
  - name: overcommit
    arguments:
      overcommit-factor: 2.0
  - name: nodeorder
  - name: data-locality
"""
POLL_S = 0.05
NODES = ("process-00", "process-01")
FINAL = ("Completed", "Failed", "Aborted", "Terminated")
FILES = {"train.bin": bytes(range(256)) * 4000, "meta/labels.txt": b"cat dog\n"}
Document = dict[str, Any]


def digest_of(files: Mapping[str, bytes]) -> str:
    lines = (f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files))
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


def lay(folder: Path, files: Mapping[str, bytes]) -> str:
    """Write a data set; returns its URI."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return f"file://{folder}"


class DataSystem:
    """A running system with two process nodes, and what its log and disk have of data sets."""

    def __init__(self, running: system.System, state: Path) -> None:
        self.running, self.state = running, state

    async def until(self, read: Callable[[], Any], wanted: Callable[[Any], object]) -> Any:
        """The value that ``read`` returns, once it is wanted."""
        value = None
        try:
            async with asyncio.timeout(records.DEADLINE_S):
                # The log is read from outside of the system.
                while not wanted(value := await asyncio.to_thread(read)):  # noqa: ASYNC110 - above
                    await asyncio.sleep(POLL_S)
                return value
        except TimeoutError:
            raise AssertionError(f"still {value!r}") from None

    async def apply(self, *manifests: Document) -> None:
        async with self.running.client() as http:
            answer = await http.post("/v1/apply", json={"objects": manifests})
        assert answer.is_success, answer.text

    async def job(self, name: str) -> Document:
        async with self.running.client() as http:
            answer = await http.get(f"/v1/namespaces/default/jobs/{name}")
        found: Document = answer.raise_for_status().json()
        return found

    async def phase(self, name: str, *wanted: str) -> str:
        """The phase of a job, once it is one of these."""
        phase = ""
        try:
            async with asyncio.timeout(records.DEADLINE_S):
                while phase not in wanted:
                    found = await self.job(name)
                    phase = str(found.get("status", {}).get("state", {}).get("phase", ""))
                    await asyncio.sleep(POLL_S)
                return phase
        except TimeoutError:
            raise AssertionError(f"job {name} is still {phase!r}") from None

    async def log_of(self, pod: str) -> str:
        async with self.running.client() as http:
            answer = await http.get(f"/v1/namespaces/default/pods/{pod}/log")
        assert answer.is_success, answer.text
        return str(answer.text)

    async def pod(self, job: str) -> Document:
        async with self.running.client() as http:
            answer = await http.get(f"/v1/namespaces/default/jobs/{job}/pods")
        (pod,) = answer.raise_for_status().json()["items"]
        return dict(pod)

    async def pod_node(self, job: str) -> str:
        return str((await self.pod(job))["spec"]["nodeName"])

    async def listed(self, node: str, state: str) -> Document:
        """The only data set of the namespace on REST, once its copy on a node is in this state."""
        try:
            async with asyncio.timeout(records.DEADLINE_S):
                while True:
                    async with self.running.client() as http:
                        answer = await http.get("/v1/namespaces/default/data-sets")
                    (found,) = answer.raise_for_status().json()["items"]
                    if (node, state) in {(it["node"], it["state"]) for it in found["nodes"]}:
                        return dict(found)
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"no {state} copy on {node}") from None

    def published(self) -> dict[str, data.DataObserved]:
        """Node -> its newest record on ``cluster.data``."""
        log = self.state / state_folder.LOG
        with contextlib.closing(sqlite3.connect(log)) as database:
            rows = database.execute(
                "SELECT key, value FROM records JOIN topics ON topic = topics.id "
                "WHERE topics.name LIKE ? AND value IS NOT NULL ORDER BY records.offset",
                (f"%.{topics.DATA.name}",),
            ).fetchall()
        return {
            key: decoding.from_json(value, data.DataObserved) for key, value in rows if key in NODES
        }

    def copies(self, key: str) -> dict[str, data.DataCopy]:
        """Node -> its published copy of a data set."""
        return {
            node: copy
            for node, observed in self.published().items()
            for copy in observed.copies
            if copy.key == key
        }

    def content(self, node: str, key: str) -> Path:
        return Path(data_sets.volume_path(str(self.state / "data" / node), key))


@contextlib.asynccontextmanager
async def running(folder: Path, **options: Any) -> AsyncIterator[DataSystem]:
    """A system on this folder."""
    configuration = folder / "scheduler.conf"
    configuration.write_text(CONFIGURATION)
    nodes = machine.node_documents(2, machine.resources(), cpu="1", memory="1Gi")
    given = system.Options(
        state=folder / "state",
        process_nodes=tuple(nodes),
        scheduler=SchedulerSettings(configuration=str(configuration)),
        **options,
    )
    async with system.run_system(given) as made:
        async with asyncio.timeout(records.DEADLINE_S):
            await made.ready()
        yield DataSystem(made, folder / "state")


def job(name: str, script: str, *sets: Document, replicas: int = 1, cpu: str = "1") -> Document:
    """A job whose pods run a script in a shell. With the whole CPU of a node each."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": cpu, "memory": "32Mi"}},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "minAvailable": replicas,
            "dataSets": list(sets),
            "tasks": [{"name": "work", "replicas": replicas, "template": {"spec": spec}}],
        },
    }


def data_set(uri: str, digest: str = "", **more: Any) -> Document:
    given = {"name": "corpus", "uri": uri, "mountPath": "/data/corpus", **more}
    return {**given, **({"digest": digest} if digest else {})}


HASH = "cd ${STROM_POD_ROOT}/data/corpus && find . -type f | sort | xargs sha256sum"


def hashes(files: Mapping[str, bytes]) -> str:
    return "".join(
        f"{hashlib.sha256(files[path]).hexdigest()}  ./{path}\n" for path in sorted(files)
    )


async def test_a_gang_reads_its_data_set_on_both_nodes_and_the_copies_are_reported(
    tmp_path: Path,
) -> None:
    uri, digest = lay(tmp_path / "corpus", FILES), digest_of(FILES)
    key = data_sets.content_key(uri, digest)
    async with running(tmp_path) as data_system:
        await data_system.apply(job("train", HASH, data_set(uri, digest), replicas=2))
        assert await data_system.phase("train", *FINAL) == "Completed"
        for index in (0, 1):
            assert await data_system.log_of(f"train-work-{index}") == hashes(FILES)
        found = await data_system.until(
            lambda: data_system.copies(key), lambda copies: {*copies} == {*NODES}
        )
        for copy in found.values():
            assert (copy.state, copy.digest) == ("Complete", digest)
            assert copy.fetched_bytes == sum(map(len, FILES.values()))


async def test_a_pod_waits_while_its_data_cannot_be_fetched_and_starts_when_it_is_there(
    tmp_path: Path,
) -> None:
    """Its node gives the reason in an Event, and it never runs without data. Until then it is
    creating its containers, as on a kubelet: that it waits is no error of the pod."""
    uri = f"file://{tmp_path}/later.bin"
    key = data_sets.content_key(uri, "")
    script = "cat ${STROM_POD_ROOT}/data/corpus/later.bin"
    async with running(tmp_path) as data_system:
        await data_system.apply(job("late", script, data_set(uri)))
        found = await data_system.until(
            lambda: data_system.copies(key), lambda copies: any(c.reason for c in copies.values())
        )
        (copy,) = found.values()
        assert copy.state == "Failed"
        assert copy.reason.startswith("No such file or directory: later.bin (retried after")
        listed = await data_system.listed(next(iter(found)), "Failed")
        assert (listed["uri"], listed["key"]) == (uri, key)
        (status,) = (await data_system.pod("late"))["status"]["containerStatuses"]
        assert status["state"]["waiting"]["reason"] == "ContainerCreating"
        (tmp_path / "later.bin").write_bytes(b"now")
        assert await data_system.phase("late", *FINAL) == "Completed"
        assert await data_system.log_of("late-work-0") == "now"
        listed = await data_system.listed(await data_system.pod_node("late"), "Complete")
        assert listed["bytes"] == len(b"now")


async def test_data_of_a_pending_gang_is_there_before_its_pod_starts(tmp_path: Path) -> None:
    uri, digest = lay(tmp_path / "corpus", FILES), digest_of(FILES)
    key = data_sets.content_key(uri, digest)
    async with running(tmp_path) as data_system:
        release = tmp_path / "release"
        wait = f"while [ ! -e {release} ]; do sleep 0.05; done"
        await data_system.apply(job("busy", wait, replicas=2))
        await data_system.phase("busy", "Running")
        await data_system.apply(job("next", HASH, data_set(uri, digest, locality="Required")))
        found = await data_system.until(
            lambda: data_system.copies(key),
            lambda copies: any(copy.state == "Complete" for copy in copies.values()),
        )
        status = (await data_system.job("next")).get("status", {})
        assert not status.get("running"), "it waits for a node"
        release.touch()
        assert await data_system.phase("next", *FINAL) == "Completed"
        assert await data_system.log_of("next-work-0") == hashes(FILES)
        nodes = {node for node, copy in found.items() if copy.state == "Complete"}
        assert await data_system.pod_node("next") in nodes, "it starts where its data is"


async def test_a_vanished_copy_is_fetched_again_for_the_next_job(tmp_path: Path) -> None:
    uri, digest = lay(tmp_path / "corpus", FILES), digest_of(FILES)
    key = data_sets.content_key(uri, digest)
    async with running(tmp_path) as data_system:
        await data_system.apply(job("first", HASH, data_set(uri, digest)))
        assert await data_system.phase("first", *FINAL) == "Completed"
        for node in NODES:
            shutil.rmtree(data_system.state / "data" / node / key, ignore_errors=True)
        await data_system.until(lambda: data_system.copies(key), lambda copies: not copies)
        await data_system.apply(job("second", HASH, data_set(uri, digest)))
        assert await data_system.phase("second", *FINAL) == "Completed"
        assert await data_system.log_of("second-work-0") == hashes(FILES)


async def test_a_copy_that_was_damaged_is_not_used_after_a_restart(tmp_path: Path) -> None:
    uri, digest = lay(tmp_path / "corpus", FILES), digest_of(FILES)
    key = data_sets.content_key(uri, digest)
    async with running(tmp_path) as data_system:
        await data_system.apply(job("first", HASH, data_set(uri, digest)))
        assert await data_system.phase("first", *FINAL) == "Completed"
        content = data_system.content(await data_system.pod_node("first"), key)
    damaged = content / "train.bin"
    damaged.chmod(0o644)
    damaged.write_bytes(b"?" * damaged.stat().st_size)
    async with running(tmp_path) as data_system:
        await data_system.apply(job("second", HASH, data_set(uri, digest)))
        assert await data_system.phase("second", *FINAL) == "Completed"
        assert await data_system.log_of("second-work-0") == hashes(FILES)


async def test_under_pressure_copies_in_use_stay_and_others_make_room(tmp_path: Path) -> None:
    sets = {name: {"f": name.encode() * 400_000} for name in ("a", "b", "c")}
    uris = {name: lay(tmp_path / name, files) for name, files in sets.items()}
    keys = {name: data_sets.content_key(uri, "") for name, uri in uris.items()}
    release = tmp_path / "release"
    use = f"{HASH}; while [ ! -e {release} ]; do sleep 0.05; done; {HASH}"

    def of(name: str) -> Document:
        return data_set(uris[name], size="400k")

    async with running(tmp_path, data_capacity_bytes=900_000) as data_system:
        await data_system.apply(job("using", use, of("a"), replicas=2, cpu="100m"))
        await data_system.phase("using", "Running")
        for name in ("b", "c"):
            await data_system.apply(job(name, HASH, of(name), cpu="100m"))
            assert await data_system.phase(name, *FINAL) == "Completed"
            assert await data_system.log_of(f"{name}-work-0") == hashes(sets[name])
            for observed in data_system.published().values():
                assert observed.used_bytes <= observed.capacity_bytes
        used = await data_system.until(
            lambda: data_system.copies(keys["a"]),
            lambda copies: copies and all(copy.in_use for copy in copies.values()),
        )
        assert {copy.state for copy in used.values()} == {"Complete"}
        release.touch()
        assert await data_system.phase("using", *FINAL) == "Completed"
        assert await data_system.log_of("using-work-0") == hashes(sets["a"]) * 2


async def test_an_origin_that_is_not_allowed_is_not_read(tmp_path: Path) -> None:
    uri = lay(tmp_path / "corpus", FILES)
    key = data_sets.content_key(uri, "")
    async with running(tmp_path, data_origins=("https://",)) as data_system:
        await data_system.apply(job("refused", HASH, data_set(uri)))
        found = await data_system.until(lambda: data_system.copies(key), bool)
        (copy,) = found.values()
        assert copy.state == "Failed"
        assert copy.reason.startswith("this node may not read file://: allowed origins are https:")
        assert not any((data_system.state / "data" / node / key).exists() for node in NODES)
