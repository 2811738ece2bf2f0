"""A process node on an embedded cluster: pods bound to it run and report their status."""

import base64
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from embedded.tests.process_pods import NODE, Document, ProcessCluster, phase, state
from stromboli.embedded.processes import agent, launcher_client, machine
from stromboli.embedded.processes.core import image_files
from stromboli.embedded.processes.disk import PodFolder
from stromboli.embedded.processes.log_archive import LogArchive
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")


async def test_a_pods_command_runs_and_its_output_and_exit_code_are_kept(
    process_cluster: ProcessCluster,
) -> None:
    container = {"args": ["echo $GREETING; echo err >&2; exit 3"], "env": [hello()]}
    await process_cluster.run("p", "sh", "-c", container=container)
    pod = await process_cluster.over("p")
    assert phase(pod) == "Failed"
    ended = state(pod)["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert await process_cluster.log("p") == "hello p\nerr\n"
    assert pod["status"]["podIP"].startswith("127.")


def hello() -> Document:
    return {"name": "GREETING", "value": "hello $(HOSTNAME)"}


async def test_a_log_can_be_followed_while_it_is_written(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    script = "echo one; while [ ! -e $FLAG ]; do sleep 0.05; done; echo two"
    flag = tmp_path / "flag"
    env = [{"name": "FLAG", "value": str(flag)}]
    await process_cluster.run("p", "sh", "-c", script, container={"env": env})
    await process_cluster.until("p", lambda it: phase(it) == "Running")
    read = b""
    async with process_cluster.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        async for chunk in chunks:
            read += chunk
            flag.touch()
    assert read == b"one\ntwo\n"


async def test_init_containers_come_first_and_each_container_has_its_log(
    process_cluster: ProcessCluster,
) -> None:
    volumes = [{"name": "e", "emptyDir": {}}]
    mounts = [{"name": "e", "mountPath": "/strom-e"}]
    first = {
        "name": "first",
        "image": "none",
        "command": ["sh", "-c", "echo made > $STROM_POD_ROOT/strom-e/file; echo init"],
        "volumeMounts": mounts,
    }
    container = {"args": ["cat $STROM_POD_ROOT/strom-e/file"], "volumeMounts": mounts}
    await process_cluster.run(
        "p", "sh", "-c", container=container, initContainers=[first], volumes=volumes
    )
    assert phase(await process_cluster.over("p")) == "Succeeded"
    assert await process_cluster.log("p", "main") == "made\n"
    assert await process_cluster.log("p", "first") == "init\n"


async def test_config_maps_and_secrets_are_files_and_variables(
    process_cluster: ProcessCluster,
) -> None:
    await process_cluster.cluster.create(
        kinds.CONFIG_MAPS, "default", objects.config_map("settings", colour="red")
    )
    secret = {"data": {"password": base64.b64encode(b"s3cret").decode()}}
    await process_cluster.cluster.create(
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
    await process_cluster.run("p", "sh", "-c", script, container=container, volumes=volumes)
    assert phase(await process_cluster.over("p")) == "Succeeded"
    assert await process_cluster.log("p") == "reds3cret\n600\ns3cret red\n"


async def test_files_of_a_config_map_follow_its_changes(process_cluster: ProcessCluster) -> None:
    """Like host lists when a job is scaled: keys are added and removed, and no file is half
    written.
    """
    await process_cluster.cluster.create(
        kinds.CONFIG_MAPS, "default", objects.config_map("hosts", list="a", old="x")
    )
    container = {"volumeMounts": [{"name": "c", "mountPath": "/etc/strom-hosts"}]}
    volumes = [{"name": "c", "configMap": {"name": "hosts"}}]
    script = (
        "cd $STROM_POD_ROOT/etc/strom-hosts; cat list; until [ -e new ]; do sleep 0.05; done; "
        "until [ ! -e old ]; do sleep 0.05; done; cat list new"
    )
    await process_cluster.run("p", "sh", "-c", script, container=container, volumes=volumes)
    await process_cluster.until("p", lambda it: phase(it) == "Running")
    async with process_cluster.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        assert await anext(chunks) == b"a"
    patch = objects.merge(data={"list": "ab", "old": None, "new": "c"})
    await process_cluster.cluster.patch(
        kinds.CONFIG_MAPS, "default", "hosts", patch, patch_type="merge"
    )
    assert phase(await process_cluster.over("p")) == "Succeeded"
    assert await process_cluster.log("p") == "aabc"


async def test_a_host_path_is_the_machines(process_cluster: ProcessCluster, tmp_path: Path) -> None:
    host = tmp_path / "data"
    volumes = [{"name": "h", "hostPath": {"path": str(host), "type": "DirectoryOrCreate"}}]
    container = {"volumeMounts": [{"name": "h", "mountPath": "/strom-data"}]}
    script = "echo result > $STROM_POD_ROOT/strom-data/out"
    await process_cluster.run("p", "sh", "-c", script, container=container, volumes=volumes)
    assert phase(await process_cluster.over("p")) == "Succeeded"
    assert (host / "out").read_text() == "result\n"


async def test_what_a_container_needs_is_waited_for_and_said(
    process_cluster: ProcessCluster,
) -> None:
    container = {"envFrom": [{"configMapRef": {"name": "late"}}], "args": ["echo $colour"]}
    await process_cluster.run("p", "sh", "-c", container=container)
    pod = await process_cluster.until(
        "p", lambda it: "message" in str(it.get("status", {}).get("containerStatuses"))
    )
    assert phase(pod) == "Pending"
    assert state(pod)["waiting"]["message"] == "ConfigMap late does not exist"
    await process_cluster.cluster.create(
        kinds.CONFIG_MAPS, "default", objects.config_map("late", colour="blue")
    )
    assert phase(await process_cluster.over("p")) == "Succeeded"
    assert await process_cluster.log("p") == "blue\n"
    event = await process_cluster.first_event()
    assert "ConfigMap late does not exist" in event["message"]


async def test_a_failed_container_restarts_and_its_previous_log_can_be_read(
    process_cluster: ProcessCluster,
) -> None:
    volumes = [{"name": "e", "emptyDir": {}}]
    container = {"volumeMounts": [{"name": "e", "mountPath": "/strom-e"}]}
    script = (
        "cd $STROM_POD_ROOT/strom-e; if [ -e once ]; then echo second; else "
        "touch once; echo first; exit 4; fi"
    )
    await process_cluster.run(
        "p", "sh", "-c", script, container=container, volumes=volumes, restartPolicy="OnFailure"
    )
    pod = await process_cluster.over("p")
    status = pod["status"]["containerStatuses"][0]
    assert (phase(pod), status["restartCount"]) == ("Succeeded", 1)
    assert status["lastState"]["terminated"]["exitCode"] == 4
    assert await process_cluster.log("p") == "second\n"
    assert await process_cluster.log("p", previous=True) == "first\n"


async def test_pods_of_a_subdomain_find_each_other_by_name(process_cluster: ProcessCluster) -> None:
    """They listen on the same port, each at its own address. Without namespaces the names are in a
    file of the pod.
    """
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
    await process_cluster.run("c", sys.executable, "-S", "-c", ask, subdomain="team")
    for name in ("a", "b"):
        await process_cluster.run(
            name, sys.executable, "-S", "-c", serve, subdomain="team", hostname=name
        )
    assert phase(await process_cluster.over("c")) == "Succeeded"
    assert await process_cluster.log("c") == "a.team a\nb.team b\n"


STUBBORN = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 987' &); echo on; sleep 987"


async def test_a_deleted_pod_is_killed_after_its_grace_with_all_of_its_children(
    process_cluster: ProcessCluster,
) -> None:
    await process_cluster.run("p", "sh", "-c", STUBBORN, terminationGracePeriodSeconds=1)
    pod = await process_cluster.until("p", lambda it: phase(it) == "Running")
    async with process_cluster.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        assert await anext(chunks) == b"on\n"
        await process_cluster.cluster.delete(kinds.PODS, "default", "p")
        await process_cluster.until("p", lambda it: not it)
    assert marked(pod) == []


def marked(pod: Document) -> list[int]:
    return launcher_client.processes_of(pod["metadata"]["uid"])


async def test_a_pre_stop_command_comes_before_the_signal(process_cluster: ProcessCluster) -> None:
    volumes = [{"name": "e", "emptyDir": {}}]
    hook = ["sh", "-c", "echo hook > $STROM_POD_ROOT/strom-e/h"]
    container = {
        "volumeMounts": [{"name": "e", "mountPath": "/strom-e"}],
        "lifecycle": {"preStop": {"exec": {"command": hook}}},
    }
    wait = "while sleep 0.05; do :; done"
    script = f"trap 'cat $STROM_POD_ROOT/strom-e/h; exit 0' TERM; echo on; {wait}"
    await process_cluster.run("p", "sh", "-c", script, container=container, volumes=volumes)
    await process_cluster.until("p", lambda it: phase(it) == "Running")
    read = b""
    async with process_cluster.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        async for chunk in chunks:
            if not read:
                await process_cluster.cluster.delete(kinds.PODS, "default", "p")
            read += chunk
    assert read == b"on\nhook\n"


async def test_a_log_is_read_with_the_time_of_each_line(process_cluster: ProcessCluster) -> None:
    await process_cluster.run("p", "echo", "hello")
    await process_cluster.over("p")
    time, _, text = (await process_cluster.log("p", timestamps=True)).partition(" ")
    assert text == "hello\n"
    written = datetime.fromisoformat(time)
    assert await process_cluster.log("p", since=written) == "hello\n"
    assert await process_cluster.log("p", since=written + timedelta(seconds=1)) == ""


async def test_a_command_begins_in_its_working_directory(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    """Which has to be there."""
    await process_cluster.run("p", "pwd", container={"workingDir": str(tmp_path)})
    assert phase(await process_cluster.over("p")) == "Succeeded"
    assert await process_cluster.log("p") == f"{tmp_path}\n"
    await process_cluster.run("q", "pwd", container={"workingDir": str(tmp_path / "none")})
    assert phase(await process_cluster.over("q")) == "Failed"


async def test_a_container_over_its_memory_limit_is_out_of_memory(
    process_cluster: ProcessCluster,
) -> None:
    hungry = "import time; kept = bytearray(200 << 20); time.sleep(987)"
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    await process_cluster.run("p", sys.executable, "-S", "-c", hungry, container=limits)
    ended = state(await process_cluster.over("p"))["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


async def test_a_command_that_is_absent_is_a_start_error(
    process_cluster: ProcessCluster,
) -> None:
    await process_cluster.run("p", "no-such-command")
    ended = state(await process_cluster.over("p"))["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert "no-such-command" in ended["message"]


async def test_last_words_are_in_the_status(process_cluster: ProcessCluster) -> None:
    script = "echo because > $STROM_POD_ROOT/dev/termination-log; exit 1"
    await process_cluster.run("file", "sh", "-c", script)
    assert state(await process_cluster.over("file"))["terminated"]["message"] == "because\n"
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await process_cluster.run("log", "sh", "-c", "echo so; exit 1", container=policy)
    assert state(await process_cluster.over("log"))["terminated"]["message"] == "so\n"


async def test_unsupported_fields_are_reported_on_the_pod_and_in_an_event(
    process_cluster: ProcessCluster,
) -> None:
    await process_cluster.run("p", "true", securityContext={"runAsUser": 7})
    pod = await process_cluster.over("p")
    (said,) = [it for it in pod["status"]["conditions"] if it["type"] == "stromboli.sh/Unheeded"]
    assert "spec.securityContext" in said["message"]
    assert (await process_cluster.first_event())["reason"] == "Unheeded"


async def test_a_pod_that_cannot_run_here_fails_at_once(process_cluster: ProcessCluster) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    await process_cluster.run("p", "true", volumes=[claim])
    pod = await process_cluster.over("p")
    assert (phase(pod), pod["status"]["reason"]) == ("Failed", "NotSupported")
    assert "data" in pod["status"]["message"]


async def test_a_stopped_node_takes_its_processes_along_and_what_may_continues_later(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    await process_cluster.run("never", "sleep", "987")
    await process_cluster.run("always", "sleep", "987", restartPolicy="Always")
    pods = [
        await process_cluster.until(name, lambda it: phase(it) == "Running")
        for name in ("never", "always")
    ]
    await process_cluster.stop()
    assert [marked(pod) for pod in pods] == [[], []]
    node = objects.read(await process_cluster.cluster.get(kinds.NODES, "", NODE))
    assert node["status"]["conditions"][0]["status"] == "False"
    await process_cluster.start(tmp_path / "pods")
    ended = state(await process_cluster.over("never"))["terminated"]
    assert ended["reason"] == "ContainerStatusUnknown"
    await process_cluster.until(
        "always", lambda it: '"restartCount": 1' in str(it).replace("'", '"')
    )


async def test_a_pod_that_vanishes_is_killed_and_its_files_are_deleted(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    await process_cluster.run("p", "sh", "-c", STUBBORN)
    pod = await process_cluster.until("p", lambda it: phase(it) == "Running")
    async with process_cluster.cluster.logs("default", "p", port.LogQuery(follow=True)) as chunks:
        assert await anext(chunks) == b"on\n"
        await process_cluster.cluster.delete(kinds.PODS, "default", "p", grace_seconds=0)
        assert [chunk async for chunk in chunks] == []
    await process_cluster.stop()
    assert marked(pod) == []
    await process_cluster.start(tmp_path / "pods")
    await process_cluster.run("next", "true")
    after = await process_cluster.over("next")
    assert os.listdir(tmp_path / "pods") == [after["metadata"]["uid"]]


async def test_a_pod_that_runs_nowhere_yet_has_no_log(process_cluster: ProcessCluster) -> None:
    await process_cluster.run(
        "p", "true", container={"envFrom": [{"configMapRef": {"name": "none"}}]}
    )
    await process_cluster.until("p", lambda it: "message" in str(it.get("status")))
    with pytest.raises(errors.InvalidError, match="not started yet"):
        await process_cluster.log("p")


async def test_process_nodes_without_an_agent_are_not_ready(
    process_cluster: ProcessCluster,
) -> None:
    """Nodes of an earlier process whose agent was killed: no pod may be placed on them."""
    await process_cluster.run("p", "true")
    await process_cluster.over("p")

    async def ready() -> str:
        node = objects.read(await process_cluster.cluster.get(kinds.NODES, "", NODE))
        return str(node["status"]["conditions"][0]["status"])

    await agent.mark_stale_nodes_not_ready(process_cluster.cluster, (NODE,), runtime.utc_now())
    assert await ready() == "True"
    await agent.mark_stale_nodes_not_ready(process_cluster.cluster, (), runtime.utc_now())
    assert await ready() == "False"


def test_process_nodes_share_the_machine_by_default() -> None:
    whole = {"cpu": 3000, "memory": 5 * 2**30}
    shared = [node["status"] for node in machine.node_documents(2, whole)]
    assert [it["capacity"]["cpu"] for it in shared] == ["1500m", "1500m"]  # type: ignore[index]  # a manifest
    assert [it["capacity"]["memory"] for it in shared] == ["2560Mi", "2560Mi"]  # type: ignore[index]  # as above
    (seen,) = machine.node_documents(1, whole, cpu="8", memory="1Gi")
    assert seen["status"]["capacity"] == {"cpu": "8", "memory": "1Gi", "pods": "110"}  # type: ignore[index]  # as above
    with pytest.raises(ValueError, match="eight"):
        machine.node_documents(1, whole, cpu="eight")


def test_missing_isolation_and_features_are_printed() -> None:
    assert machine.describe_isolation("", "") == []
    assert "nothing is isolated" in machine.describe_isolation("user", "")[0]
    assert "not permitted" in machine.describe_isolation("plain", "not permitted")[1]
    runtime = image_files.ImageRuntime("/usr/bin/apptainer")
    assert "run with /usr/bin/apptainer" in machine.describe_isolation("user", "", runtime)[1]


async def test_the_log_of_a_deleted_pod_is_kept_by_its_node(
    process_cluster: ProcessCluster,
) -> None:
    """A restart deletes the pods of a job, and their logs have the reason for it."""
    uids = []
    for text in ("first", "second"):
        await process_cluster.run("p", "sh", "-c", f"echo {text}")
        uids.append((await process_cluster.over("p"))["metadata"]["uid"])
        if text == "first":
            await process_cluster.cluster.delete(kinds.PODS, "default", "p", grace_seconds=0)
    assert await process_cluster.log("p", "main", uid=uids[0]) == "first\n"
    assert await process_cluster.log("p", uid=uids[0]) == "first\n", "its only container"
    assert await process_cluster.log("p", uid=uids[1]) == "second\n"
    with pytest.raises(errors.NotFoundError, match="no node has kept its log"):
        await process_cluster.log("p", "main", uid="../../x")


def test_the_oldest_logs_of_deleted_pods_go_first(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path / "logs", most_pods=3, most_bytes=25)
    for number in range(5):
        pod = PodFolder(tmp_path / "pods" / str(number))
        folder = pod.begin_log("main", 0)
        (folder / f"{0:020d}").write_bytes(b"x" * 10)
        archive.archive(pod, "default", f"p{number}", "u")
        kept = tmp_path / "logs" / f"default_p{number}_u"
        os.utime(kept, ns=(number, number))
    found = [archive.find("default", f"p{number}", "u") is not None for number in range(5)]
    assert found == [False, False, False, True, True]
