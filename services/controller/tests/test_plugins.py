"""Job plugins: their names, ports, variables, files and objects."""

import base64
import inspect
from typing import Any

import msgspec
import pytest

from services.controller.tests.support.core_harness import CoreHarness
from stromboli.controller.core.pods import plugin_objects, pods
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.job_plugins import arguments
from stromboli.testkit.builders import make_job, make_task

Body = dict[str, Any]


def pod(job: batch.Job, name: str = "") -> Body:
    """A pod of the job by name, else the first, without the variables of every pod."""
    members = list(tasks.Members(job))
    member = next((it for it in members if it.name == name), members[0])
    body: Body = msgspec.json.decode(pods.create(job, member).body)
    for container in (*body["spec"].get("initContainers", ()), *body["spec"]["containers"]):
        assert container["env"].pop() == {"name": pods.ATTEMPT, "value": "1"}
    return body


def variables(container: Body) -> dict[str, str]:
    return {it["name"]: it.get("value", "") for it in container.get("env", [])}


def main(body: Body) -> Body:
    found: Body = body["spec"]["containers"][0]
    return found


def resources(job: batch.Job, plugin: str, *args: str) -> dict[str, Body]:
    requested = msgspec.structs.replace(job.spec, plugins={plugin: args})
    creates = plugin_objects.creations(
        msgspec.structs.replace(job, spec=requested), job_plugins.BUILT_IN
    )
    return {it.kind.kind: msgspec.json.decode(it.body) for it in creates}


def test_env_sets_the_index_in_containers_and_init_containers() -> None:
    task = make_task(replicas=2, pod_spec={"initContainers": [{"name": "init"}]})
    spec = pod(make_job(tasks=[task], plugins={"env": None}), "j1-worker-1")["spec"]
    expected = [{"name": name, "value": "1"} for name in ("VK_TASK_INDEX", "VC_TASK_INDEX")]
    assert spec["containers"][0]["env"] == expected
    assert spec["initContainers"][0]["env"] == expected


def test_svc_lists_the_hosts_of_every_task() -> None:
    job = make_job(tasks=[make_task("ps", 1), make_task("big-worker", 2)], plugins={"svc": ()})
    made = resources(job, "svc")
    assert made["ConfigMap"]["metadata"]["name"] == "j1-svc"
    assert made["ConfigMap"]["data"] == {
        "ps.host": "j1-ps-0.j1",
        "VC_PS_HOSTS": "j1-ps-0.j1",
        "VC_PS_NUM": "1",
        "big_worker.host": "j1-big-worker-0.j1\nj1-big-worker-1.j1",
        "VC_BIG_WORKER_HOSTS": "j1-big-worker-0.j1,j1-big-worker-1.j1",
        "VC_BIG_WORKER_NUM": "2",
    }


def test_svc_creates_a_headless_service_and_a_network_policy() -> None:
    made = resources(make_job(), "svc")
    selector = {keys.JOB_NAME: "j1", keys.JOB_NAMESPACE: "default"}
    assert made["Service"]["spec"] == {
        "clusterIP": "None",
        "selector": selector,
        "publishNotReadyAddresses": False,
    }
    assert made["NetworkPolicy"]["spec"] == {
        "podSelector": {"matchLabels": selector},
        "ingress": [{"from": [{"podSelector": {"matchLabels": selector}}]}],
        "policyTypes": ["Ingress"],
    }


def test_svc_obeys_its_arguments() -> None:
    given = ("--publish-not-ready-addresses", "-disable-network-policy=true")
    made = resources(make_job(), "svc", *given)
    assert "NetworkPolicy" not in made
    assert made["Service"]["spec"]["publishNotReadyAddresses"] is True


def test_svc_gives_pods_names_files_and_variables() -> None:
    task = make_task("a-b", pod_spec={"initContainers": [{"name": "init"}]})
    spec = pod(make_job(tasks=[task], plugins={"svc": ()}))["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("j1-a-b-0", "j1")
    assert spec["volumes"] == [{"name": "j1-svc", "configMap": {"name": "j1-svc"}}]
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["volumeMounts"] == [{"name": "j1-svc", "mountPath": "/etc/volcano"}]
        assert [it["name"] for it in container["env"]] == ["VC_A_B_HOSTS", "VC_A_B_NUM"]
        reference = container["env"][0]["valueFrom"]["configMapKeyRef"]
        assert reference == {"name": "j1-svc", "key": "VC_A_B_HOSTS"}


def test_a_host_name_of_the_template_is_kept_and_listed_once() -> None:
    given = {"hostname": "h", "subdomain": "s"}
    job = make_job(tasks=[make_task("w", 3, pod_spec=given)], plugins={"svc": ()})
    assert resources(job, "svc")["ConfigMap"]["data"]["w.host"] == "h.s"
    spec = pod(job)["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("h", "s")


def test_svc_leaves_variables_out_when_configured() -> None:
    job = make_job(plugins={"svc": ("--inject-hosts-env=false",)})
    assert pod(job)["spec"]["containers"][0]["env"] == []


@pytest.mark.parametrize(
    ("given", "expected", "problem"),
    [
        ([], {}, ""),
        (["-x"], {"x": True}, ""),
        (["--x=false"], {}, ""),
        (["--x=T"], {"x": True}, ""),
        (["--x=maybe"], {}, "--x=maybe: write x=true or x=false"),
        (["plain", "--x"], {}, "plain: not a flag; write --name=value"),
        (["--", "--x"], {}, ""),
        (["--n=7", "-s", "text"], {"n": 7, "s": "text"}, ""),
        (["--n", "seven"], {}, "--n: 'seven' is not a number; write n=5"),
        (["--s"], {}, "--s: needs a value; write s=d"),
    ],
)
def test_arguments_are_read_as_go_flags(given: list[str], expected: Body, problem: str) -> None:
    """What was read before a fault counts, and the fault names the next step."""
    defaults: dict[str, arguments.Value] = {"x": False, "n": 5, "s": "d"}
    assert arguments.read(given, defaults) == arguments.Arguments(defaults | expected, problem)


@pytest.mark.parametrize(
    ("given", "expected", "ignored"),
    [
        (["--x", "--z"], {"x": True}, ("--z",)),
        (["--z=1", "--n=7"], {"n": 7}, ("--z=1",)),
        (["--z", "1", "--n=7"], {"n": 7}, ("--z",)),
    ],
)
def test_an_argument_of_another_version_is_passed_over(
    given: list[str], expected: Body, ignored: tuple[str, ...]
) -> None:
    """Manifests of the reference's examples and tests name some, such as ``--no-root``."""
    defaults: dict[str, arguments.Value] = {"x": False, "n": 5, "s": "d"}
    read = arguments.read(given, defaults)
    assert read == arguments.Arguments(defaults | expected, "", ignored)


def test_arguments_without_effect_are_reported_and_pods_are_created() -> None:
    harness = CoreHarness()
    harness.submit(make_job(plugins={"ssh": ("--no-root",), "svc": ("--enable-networking",)}))
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    assert harness.pod_names() == ["j1-worker-0"]
    said = [it.message for it in harness.events.values() if it.reason == "PluginError"]
    assert [it.split(": unknown, so ignored")[0] for it in sorted(said)] == [
        "plugin ssh: --no-root",
        "plugin svc: --enable-networking",
    ]


# --- ssh ------------------------------------------------------------------------------------


def mpi_job(**plugins: tuple[str, ...]) -> batch.Job:
    two = [make_task("master", 1), make_task("worker", 2)]
    return make_job(tasks=two, plugins=plugins or {"mpi": ()})


def test_ssh_lists_every_host_and_leaves_the_keys_to_the_creator_of_the_secret() -> None:
    (create,) = plugin_objects.creations(mpi_job(ssh=()), job_plugins.BUILT_IN)
    assert (create.kind, create.name, create.secret) == (kinds.SECRETS, "j1-ssh", "ssh-keys")
    data = msgspec.json.decode(create.body)["data"]
    assert set(data) == {"config"}
    assert base64.b64decode(data["config"]).decode().splitlines() == [
        "StrictHostKeyChecking no",
        "UserKnownHostsFile /dev/null",
        *("Host j1-master-0", "  HostName j1-master-0.j1", "  Port 22"),
        *("Host j1-worker-0", "  HostName j1-worker-0.j1", "  Port 22"),
        *("Host j1-worker-1", "  HostName j1-worker-1.j1", "  Port 22"),
    ]


def test_ssh_hosts_follow_the_scale_and_the_keys_stay() -> None:
    """The patch of an existing Secret contains only the host list."""
    (create,) = plugin_objects.creations(mpi_job(ssh=()), job_plugins.BUILT_IN)
    assert set(msgspec.json.decode(create.update)["data"]) == {"config"}


def test_ssh_takes_the_keys_and_the_port_of_the_user() -> None:
    given = ("--ssh-private-key=PRIVATE", "--ssh-public-key=PUBLIC", "--ssh-port=2222")
    (create,) = plugin_objects.creations(mpi_job(ssh=given), job_plugins.BUILT_IN)
    assert create.secret == ""
    data = {
        name: base64.b64decode(text).decode()
        for name, text in msgspec.json.decode(create.body)["data"].items()
    }
    assert data.pop("config").count("  Port 2222") == 3
    assert data == {"id_rsa": "PRIVATE", "id_rsa.pub": "PUBLIC", "authorized_keys": "PUBLIC"}


@pytest.mark.parametrize(
    ("given", "path", "mode"),
    [((), "/root/.ssh", 0o600), (("--ssh-key-file-path=/home/me/.ssh",), "/home/me/.ssh", 0o644)],
)
def test_ssh_files_are_mounted_where_ssh_looks(
    given: tuple[str, ...], path: str, mode: int
) -> None:
    task = make_task("w", pod_spec={"initContainers": [{"name": "init"}]})
    spec = pod(make_job(tasks=[task], plugins={"ssh": given}))["spec"]
    (volume,) = spec["volumes"]
    assert volume["name"] == volume["secret"]["secretName"] == "j1-ssh"
    assert volume["secret"]["defaultMode"] == mode
    assert [it["path"] for it in volume["secret"]["items"]] == [
        ".ssh/id_rsa",
        ".ssh/id_rsa.pub",
        ".ssh/authorized_keys",
        ".ssh/config",
    ]
    for container in (*spec["containers"], *spec["initContainers"]):
        (mounted,) = container["volumeMounts"]
        assert mounted == {"name": "j1-ssh", "mountPath": path, "subPath": ".ssh"}


def test_a_port_out_of_range_is_reported_and_read_as_22() -> None:
    job = mpi_job(ssh=("--ssh-port=70000",))
    assert list(plugin_objects.problems(job, job_plugins.BUILT_IN)) == [
        "plugin ssh: ssh-port=70000: a port is 1 to 65535"
    ]
    (create,) = plugin_objects.creations(job, job_plugins.BUILT_IN)
    config = base64.b64decode(msgspec.json.decode(create.body)["data"]["config"]).decode()
    assert config.count("  Port 22\n") == 3


# --- frameworks -----------------------------------------------------------------------------


def test_tensorflow_knows_its_cluster() -> None:
    job = make_job(
        tasks=[make_task("ps", 1), make_task("trainer", 2), make_task("other", 1)],
        plugins={"tensorflow": ("--worker=trainer", "--port=3333")},
    )
    config = msgspec.json.decode(variables(main(pod(job, "j1-trainer-1")))["TF_CONFIG"])
    assert config == {
        "cluster": {
            "ps": ["j1-ps-0.j1:3333"],
            "worker": ["j1-trainer-0.j1:3333", "j1-trainer-1.j1:3333"],
        },
        "task": {"type": "worker", "index": 1},
    }


def test_a_host_name_of_the_template_is_repeated_for_every_replica_of_tensorflow() -> None:
    tasks_ = [make_task("worker", 2, pod_spec={"hostname": "h"})]
    job = make_job(tasks=tasks_, plugins={"tensorflow": ()})
    config = msgspec.json.decode(variables(main(pod(job)))["TF_CONFIG"])
    assert config["cluster"] == {"worker": ["h.j1:2222", "h.j1:2222"]}


def test_a_single_tensorflow_process_needs_no_cluster() -> None:
    job = make_job(tasks=[make_task("worker", 1)], plugins={"tensorflow": ()})
    assert "TF_CONFIG" not in variables(main(pod(job)))


@pytest.mark.parametrize(
    ("name", "rank"),
    [("j1-master-0", "0"), ("j1-worker-0", "1"), ("j1-worker-1", "2"), ("j1-log-0", None)],
)
def test_pytorch_processes_find_their_master(name: str, rank: str | None) -> None:
    tasks_ = [make_task("master", 1), make_task("worker", 2), make_task("log", 1)]
    container = main(pod(make_job(tasks=tasks_, plugins={"pytorch": ()}), name))
    seen = variables(container)
    assert seen["MASTER_ADDR"] == "j1-master-0.j1"
    assert seen["MASTER_PORT"] == "23456"
    assert seen["WORLD_SIZE"] == "3"
    assert seen.get("RANK") == rank
    assert container["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]


def test_every_pytorch_rank_is_given_once() -> None:
    """Also with two masters: two processes of rank 0 would wait for each other indefinitely."""
    job = make_job(tasks=[make_task("master", 2), make_task("worker", 3)], plugins={"pytorch": ()})
    ranks = [variables(main(pod(job, it.name)))["RANK"] for it in tasks.Members(job)]
    assert sorted(ranks) == ["0", "1", "2", "3", "4"]


def test_a_port_that_exists_is_not_opened_again() -> None:
    given = [{"name": "mine", "containerPort": 23456}]
    task = make_task("master", pod_spec={"containers": [{"name": "c", "ports": given}]})
    assert main(pod(make_job(tasks=[task], plugins={"pytorch": ()})))["ports"] == given


def test_pytorch_workers_wait_for_the_master_when_configured() -> None:
    job = make_job(
        tasks=[make_task("master", 1), make_task("worker", 1)],
        plugins={"pytorch": ("--wait-master-enabled", "--wait-master-timeout=60")},
    )
    assert "initContainers" not in pod(job, "j1-master-0")["spec"]
    (waiting,) = pod(job, "j1-worker-0")["spec"]["initContainers"]
    assert (waiting["name"], waiting["image"]) == ("wait-for-master", "busybox:1.36.1")
    (_, _, script) = waiting["command"]
    assert "nc -z -w 2 j1-master-0.j1 23456" in script
    assert "+ 60)" in script


def test_pytorch_without_a_master_adds_nothing() -> None:
    container = main(pod(make_job(plugins={"pytorch": ()})))
    assert "RANK" not in variables(container)
    assert "ports" not in container


def test_an_mpi_master_knows_its_workers_and_all_open_the_ssh_port() -> None:
    job = mpi_job()
    master, worker = main(pod(job, "j1-master-0")), main(pod(job, "j1-worker-1"))
    assert variables(master)["MPI_HOST"] == "j1-worker-0.j1,j1-worker-1.j1"
    assert "MPI_HOST" not in variables(worker)
    for container in (master, worker):
        assert container["ports"] == [{"name": "mpijob-port", "containerPort": 22}]


def test_mpi_brings_svc_and_ssh() -> None:
    made = {
        (it.kind.kind, it.name) for it in plugin_objects.creations(mpi_job(), job_plugins.BUILT_IN)
    }
    assert made == {
        ("ConfigMap", "j1-svc"),
        ("Service", "j1"),
        ("NetworkPolicy", "j1"),
        ("Secret", "j1-ssh"),
    }
    assert set(plugin_objects.controlled(mpi_job(), job_plugins.BUILT_IN)) >= {
        "plugin-mpi",
        "plugin-ssh",
        "plugin-svc",
    }


def ray_job(*arguments_: str) -> batch.Job:
    def task(name: str) -> batch.TaskSpec:
        return make_task(name, pod_spec={"containers": [{"name": name}, {"name": "side"}]})

    return make_job(tasks=[task("head"), task("worker")], plugins={"ray": arguments_})


def test_ray_starts_its_head_and_its_workers() -> None:
    head, side = pod(ray_job(), "j1-head-0")["spec"]["containers"]
    assert head["command"] == [
        "sh",
        "-c",
        "ray start --head --block --dashboard-host=0.0.0.0 --port=6379 --dashboard-port=8265"
        " --ray-client-server-port=10001",
    ]
    assert head["ports"] == [
        {"name": "gcs", "containerPort": 6379},
        {"name": "dashboard", "containerPort": 8265},
        {"name": "client-server", "containerPort": 10001},
    ]
    assert "command" not in side
    worker = main(pod(ray_job(), "j1-worker-0"))
    assert worker["command"] == ["sh", "-c", "ray start --block --address=j1-head-0.j1:6379"]
    assert "ports" not in worker


def test_ray_names_its_ports_also_where_their_numbers_stand_already() -> None:
    """The Service looks for the names; a container may name its own ports otherwise."""
    mine = {"name": "gcs-server", "containerPort": 6379}
    named = {"name": "dashboard", "containerPort": 9000}
    job = ray_job()
    body: job_plugins.Pod = {
        "metadata": {"name": "j1-head-0"},
        "spec": {"containers": [{"name": "head", "ports": [mine, named]}]},
    }
    job_plugins.BUILT_IN["ray"].mutate_pod(body, job, job.spec.tasks[0], 0, ())
    assert body["spec"]["containers"][0]["ports"] == [
        mine,
        {"name": "gcs", "containerPort": 6379},
        {"name": "dashboard", "containerPort": 8265},
        {"name": "client-server", "containerPort": 10001},
    ]


def test_ray_has_a_service_for_its_head() -> None:
    made = [
        msgspec.json.decode(it.body)
        for it in plugin_objects.creations(ray_job("--port=7000"), job_plugins.BUILT_IN)
        if it.name == "j1-head-svc"
    ]
    (service,) = made
    selector = {keys.JOB_NAME: "j1", keys.JOB_NAMESPACE: "default", keys.TASK_SPEC: "head"}
    assert service["spec"]["selector"] == selector
    assert [(it["name"], it["port"], it["targetPort"]) for it in service["spec"]["ports"]] == [
        ("gcs", 7000, "gcs"),
        ("dashboard", 8265, "dashboard"),
        ("client-server", 10001, "client-server"),
    ]


@pytest.mark.parametrize("plugin", ["ray", "mpi"])
def test_without_its_leading_task_no_pod_is_created(plugin: str) -> None:
    (blocker,) = pods.blockers(make_job(plugins={plugin: ()}))
    assert blocker.reason == "PluginError"
    assert "there is no task" in blocker.message


@pytest.mark.parametrize(
    ("name", "rank"), [("j1-master-0", "0"), ("j1-worker-1", "2"), ("j1-other-0", None)]
)
def test_hcclrank_counts_masters_before_workers(name: str, rank: str | None) -> None:
    tasks_ = [make_task("master", 1), make_task("worker", 2), make_task("other", 1)]
    body = pod(make_job(tasks=tasks_, plugins={"hcclrank": ()}), name)
    assert body["metadata"]["annotations"].get("hccl/rankIndex") == rank


def test_hcclrank_takes_the_rank_that_pytorch_gave() -> None:
    """Whatever order the job names them in."""
    tasks_ = [make_task("m", 1), make_task("w", 2)]
    plugins = {"hcclrank": (), "pytorch": ("--master=m", "--worker=w")}
    body = pod(make_job(tasks=tasks_, plugins=plugins), "j1-w-1")
    assert body["metadata"]["annotations"]["hccl/rankIndex"] == variables(main(body))["RANK"] == "2"


def test_hcclrank_keeps_what_the_user_wrote() -> None:
    task = make_task("worker", annotations={"hccl/rankIndex": "9"})
    body = pod(make_job(tasks=[task], plugins={"hcclrank": ()}))
    assert body["metadata"]["annotations"]["hccl/rankIndex"] == "9"


# --- all plugins ----------------------------------------------------------------------------


def test_every_plugin_gives_the_same_bytes_every_time() -> None:
    tasks_ = [make_task(name, 2) for name in ("master", "worker", "head", "ps")]
    job = make_job(tasks=tasks_, plugins=dict.fromkeys(job_plugins.BUILT_IN, ()))
    assert list(pods.blockers(job)) == []
    for member in tasks.Members(job):
        assert pods.create(job, member) == pods.create(job, member)
    first, second = (list(plugin_objects.creations(job, job_plugins.BUILT_IN)) for _ in range(2))
    assert first == second


class Broken(job_plugins.Plugin):
    def __init__(self, where: str) -> None:
        self.where = where

    def objects(self, job: Any, arguments: Any) -> Any:
        return 1 / 0 if self.where == "objects" else ()

    def mutate_pod(self, pod: Any, job: Any, task: Any, index: Any, arguments: Any) -> None:
        if self.where == "mutate_pod":
            raise ValueError("no")


def test_a_plugin_that_fails_is_reported_on_its_job_alone() -> None:
    job = make_job(plugins={"broken": ()})
    plugins = {**job_plugins.BUILT_IN, "broken": Broken("objects")}
    (blocker,) = pods.blockers(job, plugins)
    assert blocker.message == (
        "plugin broken failed: ZeroDivisionError: division by zero; no pod is created"
    )
    assert list(plugin_objects.removals(job, plugins)) == []
    plugins["broken"] = Broken("mutate_pod")
    member = next(iter(tasks.Members(job)))
    with pytest.raises(
        plugin_objects.PluginFailedError, match="plugin broken failed: ValueError: no"
    ):
        pods.create(job, member, plugins)


def test_plugins_are_pure() -> None:
    """They wait for nothing, so that a job's pods are built in one go."""
    for plugin in job_plugins.BUILT_IN.values():
        for name in ("problem", "job_problem", "objects", "mutate_pod"):
            assert not inspect.iscoroutinefunction(getattr(plugin, name))
