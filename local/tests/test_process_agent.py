"""A process node over an embedded cluster: pods bound to it really run, and tell how they fare."""

import base64
import os
import sys
from pathlib import Path

import pytest

from local.tests.process_room import NODE, Document, Room, phase, state
from stromboli.local.processes import agent, launched, machine
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")


async def test_a_pods_command_runs_and_its_output_and_exit_code_are_kept(room: Room) -> None:
    container = {"args": ["echo $GREETING; echo err >&2; exit 3"], "env": [hello()]}
    await room.run("p", "sh", "-c", container=container)
    pod = await room.over("p")
    assert phase(pod) == "Failed"
    ended = state(pod)["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert await room.log("p") == "hello p\nerr\n"
    assert pod["status"]["podIP"].startswith("127.")


def hello() -> Document:
    return {"name": "GREETING", "value": "hello $(HOSTNAME)"}


async def test_a_log_can_be_followed_while_it_is_written(room: Room, tmp_path: Path) -> None:
    script = "echo one; while [ ! -e $FLAG ]; do sleep 0.05; done; echo two"
    flag = tmp_path / "flag"
    env = [{"name": "FLAG", "value": str(flag)}]
    await room.run("p", "sh", "-c", script, container={"env": env})
    await room.until("p", lambda it: phase(it) == "Running")
    read = b""
    async with room.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        async for chunk in chunks:
            read += chunk
            flag.touch()
    assert read == b"one\ntwo\n"


async def test_init_containers_come_first_and_each_container_has_its_log(room: Room) -> None:
    volumes = [{"name": "e", "emptyDir": {}}]
    mounts = [{"name": "e", "mountPath": "/strom-e"}]
    first = {
        "name": "first",
        "image": "none",
        "command": ["sh", "-c", "echo made > $STROM_POD_ROOT/strom-e/file; echo init"],
        "volumeMounts": mounts,
    }
    container = {"args": ["cat $STROM_POD_ROOT/strom-e/file"], "volumeMounts": mounts}
    await room.run("p", "sh", "-c", container=container, initContainers=[first], volumes=volumes)
    assert phase(await room.over("p")) == "Succeeded"
    assert await room.log("p", "main") == "made\n"
    assert await room.log("p", "first") == "init\n"


async def test_config_maps_and_secrets_are_files_and_variables(room: Room) -> None:
    await room.cluster.create(
        kinds.CONFIG_MAPS, "default", objects.config_map("settings", colour="red")
    )
    secret = {"data": {"password": base64.b64encode(b"s3cret").decode()}}
    await room.cluster.create(
        kinds.SECRETS, "default", objects.make(kinds.SECRETS, "keys", None, **secret)
    )
    volumes = [
        {"name": "c", "configMap": {"name": "settings"}},
        {"name": "s", "secret": {"secretName": "keys", "defaultMode": 0o600}},
    ]
    mounts = [
        {"name": "c", "mountPath": "/etc/strom-settings"},
        {"name": "s", "mountPath": "/strom-keys/deep"},
    ]
    reference = {"secretKeyRef": {"name": "keys", "key": "password"}}
    script = (
        "cd $STROM_POD_ROOT/; cat etc/strom-settings/colour strom-keys/deep/password; "
        "echo; stat -L -c %a strom-keys/deep/password; echo $PASSWORD $colour"
    )
    container = {
        "volumeMounts": mounts,
        "env": [{"name": "PASSWORD", "valueFrom": reference}],
        "envFrom": [{"configMapRef": {"name": "settings"}}],
    }
    await room.run("p", "sh", "-c", script, container=container, volumes=volumes)
    assert phase(await room.over("p")) == "Succeeded"
    assert await room.log("p") == "reds3cret\n600\ns3cret red\n"


async def test_files_of_a_config_map_follow_its_changes(room: Room) -> None:
    """As host lists do when a job is scaled: new keys come, old ones go, none is half written."""
    await room.cluster.create(
        kinds.CONFIG_MAPS, "default", objects.config_map("hosts", list="a", old="x")
    )
    container = {"volumeMounts": [{"name": "c", "mountPath": "/etc/strom-hosts"}]}
    volumes = [{"name": "c", "configMap": {"name": "hosts"}}]
    script = (
        "cd $STROM_POD_ROOT/etc/strom-hosts; cat list; until [ -e new ]; do sleep 0.05; done; "
        "until [ ! -e old ]; do sleep 0.05; done; cat list new"
    )
    await room.run("p", "sh", "-c", script, container=container, volumes=volumes)
    await room.until("p", lambda it: phase(it) == "Running")
    async with room.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        assert await anext(chunks) == b"a"
    patch = objects.merge(data={"list": "ab", "old": None, "new": "c"})
    await room.cluster.patch(kinds.CONFIG_MAPS, "default", "hosts", patch, patch_type="merge")
    assert phase(await room.over("p")) == "Succeeded"
    assert await room.log("p") == "aabc"


async def test_a_host_path_is_the_machines(room: Room, tmp_path: Path) -> None:
    host = tmp_path / "data"
    volumes = [{"name": "h", "hostPath": {"path": str(host), "type": "DirectoryOrCreate"}}]
    container = {"volumeMounts": [{"name": "h", "mountPath": "/strom-data"}]}
    script = "echo result > $STROM_POD_ROOT/strom-data/out"
    await room.run("p", "sh", "-c", script, container=container, volumes=volumes)
    assert phase(await room.over("p")) == "Succeeded"
    assert (host / "out").read_text() == "result\n"


async def test_what_a_container_needs_is_waited_for_and_said(room: Room) -> None:
    container = {"envFrom": [{"configMapRef": {"name": "late"}}], "args": ["echo $colour"]}
    await room.run("p", "sh", "-c", container=container)
    pod = await room.until(
        "p", lambda it: "message" in str(it.get("status", {}).get("containerStatuses"))
    )
    assert phase(pod) == "Pending"
    assert state(pod)["waiting"]["message"] == "ConfigMap late is not there"
    await room.cluster.create(
        kinds.CONFIG_MAPS, "default", objects.config_map("late", colour="blue")
    )
    assert phase(await room.over("p")) == "Succeeded"
    assert await room.log("p") == "blue\n"
    events = (await room.cluster.list(kinds.EVENTS, "default")).items
    assert any("ConfigMap late is not there" in objects.read(it)["message"] for it in events)


async def test_a_failed_container_restarts_and_its_previous_log_can_be_read(room: Room) -> None:
    volumes = [{"name": "e", "emptyDir": {}}]
    container = {"volumeMounts": [{"name": "e", "mountPath": "/strom-e"}]}
    script = (
        "cd $STROM_POD_ROOT/strom-e; if [ -e once ]; then echo second; else "
        "touch once; echo first; exit 4; fi"
    )
    await room.run(
        "p", "sh", "-c", script, container=container, volumes=volumes, restartPolicy="OnFailure"
    )
    pod = await room.over("p")
    status = pod["status"]["containerStatuses"][0]
    assert (phase(pod), status["restartCount"]) == ("Succeeded", 1)
    assert status["lastState"]["terminated"]["exitCode"] == 4
    assert await room.log("p") == "second\n"
    assert await room.log("p", previous=True) == "first\n"


async def test_pods_of_a_subdomain_find_each_other_by_name(room: Room) -> None:
    """They listen on the same port, each at its own address. Without namespaces the names stand in
    a file of the pod's."""
    lookup = (
        "import os, socket, time\n"
        "def address(name):\n"
        "    for line in open(os.environ['STROM_POD_ROOT'] + '/etc/hosts'):\n"
        "        if name in line.split()[1:]: return line.split()[0]\n"
    )
    serve = (
        f"{lookup}"
        "server = socket.create_server((address(os.environ['HOSTNAME']), 45454))\n"
        "peer, _ = server.accept(); peer.sendall(os.environ['HOSTNAME'].encode()); peer.close()\n"
    )
    ask = (
        f"{lookup}"
        "for name in ('a.team', 'b.team'):\n"
        "    while True:\n"
        "        try:\n"
        "            found = address(name)\n"
        "            peer = socket.create_connection((found, 45454)) if found else None\n"
        "            if peer: break\n"
        "        except OSError: pass\n"
        "        time.sleep(0.05)\n"
        "    print(name, peer.recv(100).decode(), flush=True)\n"
        "    if not os.environ['STROM_POD_ROOT']: assert socket.gethostbyname(name) == found\n"
    )
    await room.run("c", sys.executable, "-S", "-c", ask, subdomain="team")
    for name in ("a", "b"):
        await room.run(name, sys.executable, "-S", "-c", serve, subdomain="team", hostname=name)
    assert phase(await room.over("c")) == "Succeeded"
    assert await room.log("c") == "a.team a\nb.team b\n"


STUBBORN = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 987' &); echo on; sleep 987"


async def test_a_deleted_pod_is_killed_after_its_grace_with_all_of_its_children(
    room: Room,
) -> None:
    await room.run("p", "sh", "-c", STUBBORN, terminationGracePeriodSeconds=1)
    pod = await room.until("p", lambda it: phase(it) == "Running")
    async with room.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        assert await anext(chunks) == b"on\n"
        await room.cluster.delete(kinds.PODS, "default", "p")
        await room.until("p", lambda it: not it)
    assert marked(pod) == []


def marked(pod: Document) -> list[int]:
    return launched.processes_of(pod["metadata"]["uid"])


async def test_a_pre_stop_command_comes_before_the_signal(room: Room) -> None:
    volumes = [{"name": "e", "emptyDir": {}}]
    hook = ["sh", "-c", "echo hook > $STROM_POD_ROOT/strom-e/h"]
    container = {
        "volumeMounts": [{"name": "e", "mountPath": "/strom-e"}],
        "lifecycle": {"preStop": {"exec": {"command": hook}}},
    }
    wait = "while sleep 0.05; do :; done"
    script = f"trap 'cat $STROM_POD_ROOT/strom-e/h; exit 0' TERM; echo on; {wait}"
    await room.run("p", "sh", "-c", script, container=container, volumes=volumes)
    await room.until("p", lambda it: phase(it) == "Running")
    read = b""
    async with room.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        async for chunk in chunks:
            if not read:
                await room.cluster.delete(kinds.PODS, "default", "p")
            read += chunk
    assert read == b"on\nhook\n"


async def test_a_command_begins_in_its_working_directory(room: Room, tmp_path: Path) -> None:
    """Which has to be there."""
    await room.run("p", "pwd", container={"workingDir": str(tmp_path)})
    assert phase(await room.over("p")) == "Succeeded"
    assert await room.log("p") == f"{tmp_path}\n"
    await room.run("q", "pwd", container={"workingDir": str(tmp_path / "none")})
    assert phase(await room.over("q")) == "Failed"


async def test_a_container_over_its_memory_limit_is_out_of_memory(room: Room) -> None:
    hungry = "import time; kept = bytearray(200 << 20); time.sleep(987)"
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    await room.run("p", sys.executable, "-S", "-c", hungry, container=limits)
    ended = state(await room.over("p"))["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


async def test_a_command_that_is_not_there_is_a_start_error(room: Room) -> None:
    await room.run("p", "no-such-command")
    ended = state(await room.over("p"))["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert "no-such-command" in ended["message"]


async def test_last_words_are_in_the_status(room: Room) -> None:
    script = "echo because > $STROM_POD_ROOT/dev/termination-log; exit 1"
    await room.run("file", "sh", "-c", script)
    assert state(await room.over("file"))["terminated"]["message"] == "because\n"
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await room.run("log", "sh", "-c", "echo so; exit 1", container=policy)
    assert state(await room.over("log"))["terminated"]["message"] == "so\n"


async def test_what_is_not_heeded_is_said_on_the_pod_and_in_an_event(room: Room) -> None:
    await room.run("p", "true", securityContext={"runAsUser": 7})
    pod = await room.over("p")
    (said,) = [it for it in pod["status"]["conditions"] if it["type"] == "stromboli.sh/Unheeded"]
    assert "spec.securityContext" in said["message"]
    events = [objects.read(it) for it in (await room.cluster.list(kinds.EVENTS, "default")).items]
    assert [it["reason"] for it in events] == ["Unheeded"]


async def test_a_pod_that_cannot_run_here_fails_at_once(room: Room) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    await room.run("p", "true", volumes=[claim])
    pod = await room.over("p")
    assert (phase(pod), pod["status"]["reason"]) == ("Failed", "NotSupported")
    assert "data" in pod["status"]["message"]


async def test_a_stopped_node_takes_its_processes_along_and_what_may_goes_on_later(
    room: Room, tmp_path: Path
) -> None:
    await room.run("never", "sleep", "987")
    await room.run("always", "sleep", "987", restartPolicy="Always")
    pods = [
        await room.until(name, lambda it: phase(it) == "Running") for name in ("never", "always")
    ]
    await room.stop()
    assert [marked(pod) for pod in pods] == [[], []]
    node = objects.read(await room.cluster.get(kinds.NODES, "", NODE))
    assert node["status"]["conditions"][0]["status"] == "False"
    await room.start(tmp_path / "pods")
    ended = state(await room.over("never"))["terminated"]
    assert ended["reason"] == "ContainerStatusUnknown"
    await room.until("always", lambda it: '"restartCount": 1' in str(it).replace("'", '"'))


async def test_a_pod_that_vanishes_is_killed_and_its_files_are_deleted(
    room: Room, tmp_path: Path
) -> None:
    await room.run("p", "sh", "-c", STUBBORN)
    pod = await room.until("p", lambda it: phase(it) == "Running")
    async with room.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        assert await anext(chunks) == b"on\n"
        await room.cluster.delete(kinds.PODS, "default", "p", grace_seconds=0)
        assert [chunk async for chunk in chunks] == []
    await room.stop()
    assert marked(pod) == []
    await room.start(tmp_path / "pods")
    await room.run("next", "true")
    after = await room.over("next")
    assert os.listdir(tmp_path / "pods") == [after["metadata"]["uid"]]


async def test_a_pod_that_runs_nowhere_yet_has_no_log(room: Room) -> None:
    await room.run("p", "true", container={"envFrom": [{"configMapRef": {"name": "none"}}]})
    await room.until("p", lambda it: "message" in str(it.get("status")))
    with pytest.raises(errors.InvalidError, match="not started yet"):
        await room.log("p")


async def test_process_nodes_that_nobody_serves_are_away(room: Room) -> None:
    """Those of another time, whose agent was killed: nothing is to be placed on them."""
    await room.run("p", "true")
    await room.over("p")

    async def ready() -> str:
        node = objects.read(await room.cluster.get(kinds.NODES, "", NODE))
        return str(node["status"]["conditions"][0]["status"])

    await agent.close_others(room.cluster, (NODE,), runtime.utc_now())
    assert await ready() == "True"
    await agent.close_others(room.cluster, (), runtime.utc_now())
    assert await ready() == "False"


def test_process_nodes_share_the_machine_unless_told_otherwise() -> None:
    whole = {"cpu": 3000, "memory": 5 * 2**30}
    shared = [node["status"] for node in machine.node_documents(2, whole)]
    assert [it["capacity"]["cpu"] for it in shared] == ["1500m", "1500m"]  # type: ignore[index]  # a manifest
    assert [it["capacity"]["memory"] for it in shared] == ["2560Mi", "2560Mi"]  # type: ignore[index]  # as above
    (told,) = machine.node_documents(1, whole, cpu="8", memory="1Gi")
    assert told["status"]["capacity"] == {"cpu": "8", "memory": "1Gi", "pods": "110"}  # type: ignore[index]  # as above
    with pytest.raises(ValueError, match="eight"):
        machine.node_documents(1, whole, cpu="eight")


def test_a_person_is_told_that_nothing_is_isolated_and_what_is_missing() -> None:
    assert machine.described("", "") == []
    assert "nothing is isolated" in machine.described("user", "")[0]
    assert "not permitted" in machine.described("plain", "not permitted")[1]
