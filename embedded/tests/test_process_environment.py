"""What containers on process nodes are given: variables, commands, volumes, names; and what not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.embedded.processes.core import addresses, environment, unsupported_fields, volumes
from stromboli.embedded.processes.core import pod as pods
from stromboli.shared import decoding

OBJECTS = {
    ("ConfigMap", "map"): {"a": b"1", "b": b"two words"},
    ("Secret", "key"): {"a": b"s3", "bytes": b"\xff"},
}
GIVEN = environment.PodContext(OBJECTS, "127.9.8.7", {"cpu": 4000, "memory": 2**30})


def pod(container: dict[str, Any] | None = None, **spec: Any) -> pods.Pod:
    document = {
        "metadata": {
            "name": "train-0",
            "namespace": "team",
            "uid": "u-1",
            "labels": {"app": "x", "b/c": "y"},
        },
        "spec": {
            "nodeName": "process-00",
            "containers": [{"name": "main", "command": ["run"], **(container or {})}],
            **spec,
        },
    }
    return decoding.convert(document, pods.Pod)


def variables(*env: dict[str, Any], **container: Any) -> dict[str, str]:
    made = pod({"env": env, **container})
    return environment.variables(made, made.spec.containers[0], GIVEN, {"PATH": "/bin"})


def ref(kind: str, **fields: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {kind: fields}}


def test_a_script_starts_where_it_was_submitted_if_that_exists_on_the_node() -> None:
    """As with sbatch."""

    def start(directory: str, *mounted: str) -> str:
        document = {
            "metadata": {"annotations": {"stromboli.sh/submit-directory": directory}},
            "spec": {"containers": [{"name": "main"}]},
        }
        made = decoding.convert(document, pods.Pod)
        known = {"/home/ann/run", "/data", "/"}
        return environment.submit_directory(
            made, [{"target": it} for it in mounted], known.__contains__
        )

    assert start("/home/ann/run") == "/home/ann/run"
    assert start("/home/ann/other") == "/"
    assert start("/home/ann/run", "/dev/shm", "/home/ann") == "/", "a volume hides it"
    assert start("/home/ann/run", "/home/an") == "/home/ann/run"
    assert start("") == start("home") == "/"


def test_a_container_has_the_nodes_base_its_host_name_and_its_own_variables() -> None:
    made = variables({"name": "X", "value": "1"})
    assert made == {"PATH": "/bin", "HOSTNAME": "train-0", "X": "1"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$(LATER) $(NOBODY)", "$(LATER) $(NOBODY)"),
        ("$$(A) $$$(A) $A", "$(A) $1 $A"),
        ("$(A", "$(A"),
        ("$()", "$()"),
    ],
)
def test_references_mean_what_came_before_and_others_stay(written: str, read: str) -> None:
    """As in Kubernetes; ``$$`` is a dollar."""
    made = variables(
        {"name": "A", "value": "1"},
        {"name": "B", "value": "2"},
        {"name": "X", "value": written},
        {"name": "LATER", "value": "3"},
    )
    assert made["X"] == read


@given(st.text(alphabet="$()AB x", max_size=20))
def test_expansion_never_fails_and_without_dollars_changes_nothing(text: str) -> None:
    expanded = environment.expand(text, {"A": "1"})
    assert "$" in text or expanded == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "train-0"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['b/c']", "y"),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", 'app="x"\nb/c="y"'),
        ("spec.nodeName", "process-00"),
        ("status.podIP", "127.9.8.7"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_the_downward_api_gives_the_pods_fields(path: str, value: str) -> None:
    assert variables(ref("fieldRef", fieldPath=path))["X"] == value


@pytest.mark.parametrize(
    ("requested", "divisor", "value"),
    [
        ("limits.cpu", "0", "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.memory", "1Mi", "64"),
        ("limits.memory", "1Mi", "1024"),
    ],
)
def test_resources_are_given_in_units_and_without_a_limit_the_machines(
    requested: str, divisor: str, value: str
) -> None:
    resources = {"requests": {"memory": "64Mi"}, "limits": {"cpu": "1500m"}}
    found = variables(
        ref("resourceFieldRef", resource=requested, divisor=divisor), resources=resources
    )
    assert found["X"] == value


def test_config_maps_and_secrets_come_whole_or_by_key_and_own_variables_win() -> None:
    made = variables(
        {"name": "b", "value": "mine"},
        ref("secretKeyRef", name="key", key="a"),
        envFrom=[{"configMapRef": {"name": "map"}}, {"prefix": "S_", "secretRef": {"name": "key"}}],
    )
    assert {name: made[name] for name in ("a", "b", "S_a", "X")} == {
        "a": "1",
        "b": "mine",
        "S_a": "s3",
        "X": "s3",
    }


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (ref("configMapKeyRef", name="none", key="a"), "ConfigMap none does not exist"),
        (ref("configMapKeyRef", name="map", key="z"), "ConfigMap map has no key z"),
        (ref("fieldRef", fieldPath="spec.unknown"), "spec.unknown"),
        ({"name": "X", "valueFrom": {"fileKeyRef": {}}}, "valueFrom without a source"),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], said: str) -> None:
    with pytest.raises(environment.MissingError, match=said):
        variables(source)


def test_what_is_optional_may_be_missing() -> None:
    for fields in ({"name": "none", "key": "a"}, {"name": "map", "key": "z"}):
        assert "X" not in variables(ref("configMapKeyRef", optional=True, **fields))


def test_a_command_is_expanded_as_values_are() -> None:
    container = pod({"command": ["run", "$(A)"], "args": ["$(B)", "$$x"]}).spec.containers[0]
    assert environment.command(container, {"A": "1"}) == ["run", "1", "$(B)", "$x"]


def files(volume: dict[str, Any]) -> dict[str, tuple[bytes, int]]:
    content = volumes.volume_contents(pod(volumes=[{"name": "v", **volume}]), GIVEN)["v"]
    assert content.is_given
    return {file.path: (file.content, file.mode) for file in content.files}


def test_volumes_of_the_api_have_the_keys_requested_with_their_modes() -> None:
    assert files({"configMap": {"name": "map"}}) == {
        "a": (b"1", 0o644),
        "b": (b"two words", 0o644),
    }
    secret = {
        "secretName": "key",
        "defaultMode": 0o600,
        "items": [{"key": "a", "path": ".ssh/id"}, {"key": "bytes", "path": "b", "mode": 0o400}],
    }
    assert files({"secret": secret}) == {".ssh/id": (b"s3", 0o600), "b": (b"\xff", 0o400)}
    item = {"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}
    sources = [
        {"configMap": {"name": "map", "items": [{"key": "a", "path": "m"}]}},
        {"secret": {"name": "key", "items": [{"key": "a", "path": "s"}]}},
        {"downwardAPI": {"items": [item]}},
    ]
    projected = files({"projected": {"sources": sources, "defaultMode": 0o440}})
    assert projected == {"m": (b"1", 0o440), "s": (b"s3", 0o440), "n": (b"train-0", 0o440)}


@pytest.mark.parametrize(
    "volume",
    [
        {"configMap": {"name": "none"}},
        {"configMap": {"name": "map", "items": [{"key": "z", "path": "z"}]}},
        {"configMap": {"name": "map", "items": [{"key": "a", "path": "../../a"}]}},
    ],
)
def test_a_volume_that_cannot_be_is_refused(volume: dict[str, Any]) -> None:
    with pytest.raises(environment.MissingError):
        files(volume)


def test_mounts_are_read_only_where_the_api_gives_the_files_and_never_lead_out() -> None:
    mounts = [
        {"name": "v", "mountPath": "etc//x/", "subPathExpr": "$(A)"},
        {"name": "e", "mountPath": "/scratch"},
    ]
    made = pod(
        {"volumeMounts": mounts},
        volumes=[{"name": "v", "configMap": {"name": "map"}}, {"name": "e", "emptyDir": {}}],
    )
    contents = volumes.volume_contents(made, GIVEN)
    volume_mounts = volumes.volume_mounts(made.spec.containers[0], contents, {"A": "sub"})
    assert [(it.volume, it.path, it.target, it.read_only) for it in volume_mounts] == [
        ("v", "sub", "/etc/x", True),
        ("e", "", "/scratch", False),
    ]
    with pytest.raises(environment.MissingError, match="points outside"):
        volumes.volume_mounts(made.spec.containers[0], contents, {"A": "../../x"})


@given(st.lists(st.uuids().map(str), unique=True, max_size=50))
def test_addresses_are_loopback_each_pods_own_and_the_same_again(uids: list[str]) -> None:
    taken: list[str] = []
    for uid in uids:
        found = addresses.address(uid, taken)
        parts = [int(part) for part in found.split(".")]
        assert found not in taken
        assert parts[0] == 127
        assert 1 <= parts[1] <= 254
        assert 1 <= parts[3] <= 254
        assert addresses.address(uid, taken) == found
        taken.append(found)


def test_a_hosts_file_names_the_pod_its_peers_and_what_the_machine_knows() -> None:
    own = addresses.PodAddress("team", "a", "train", "127.1.0.1")
    peer = addresses.PodAddress("team", "b", "train", "127.1.0.2")
    strangers = [
        addresses.PodAddress("other", "c", "train", "127.1.0.3"),
        addresses.PodAddress("team", "d", "", "x"),
    ]
    text = addresses.hosts_file(own, [peer, own, *strangers], (), "127.0.0.1 localhost\n")
    resolved: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *called = line.partition("#")[0].split() or [""]
        for name in called:
            resolved.setdefault(name, []).append(address)
    assert resolved["a"] == ["127.1.0.1"]
    for name in ("b.train", "b.train.team", "b.train.team.svc", "b.train.team.svc.cluster.local"):
        assert resolved[name] == ["127.1.0.2"]
    assert resolved["train"] == ["127.1.0.1", "127.1.0.2"]
    assert resolved["localhost"] == ["127.0.0.1"]
    assert "127.1.0.3" not in text


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("hosts: files dns", None),
        ("passwd: files", None),
        ("hosts:  resolve [!UNAVAIL=return] files dns", "resolve [!UNAVAIL=return] dns"),
        ("hosts: dns", "dns"),
    ],
)
def test_the_hosts_file_is_asked_before_a_resolver_of_the_machine(
    line: str, order: str | None
) -> None:
    expected = None if order is None else f"a: b\nhosts: files {order}\n"
    assert addresses.lookup_order(f"a: b\n{line}\n") == expected


def test_whatever_a_pod_asks_for_and_does_not_get_is_named() -> None:
    document = {
        "spec": {
            "schedulerName": "volcano",
            "securityContext": {"runAsUser": 1},
            "dnsPolicy": "None",
            "hostPID": True,
            "shareProcessNamespace": False,
            "fieldOfTheFuture": 1,
            "volumes": [{"name": "e", "emptyDir": {"medium": "Memory"}}],
            "containers": [
                {
                    "name": "a",
                    "command": ["x"],
                    "securityContext": {},
                    "tty": True,
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                    "livenessProbe": {"grpc": {"port": 1}},
                    "lifecycle": {"postStart": {"exec": {}}, "preStop": {"exec": {"command": []}}},
                    "volumeMounts": [{"name": "e", "mountPath": "/e", "mountPropagation": "None"}],
                }
            ],
        }
    }
    assert unsupported_fields.unsupported_paths(document, at_true_paths=True) == [
        "spec.securityContext",
        "spec.dnsPolicy=None",
        "spec.hostPID",
        "spec.fieldOfTheFuture",
        "spec.volumes[0].emptyDir.medium",
        "spec.containers[0].tty",
        "spec.containers[0].resources.limits.cpu",
        "spec.containers[0].livenessProbe.grpc",
        "spec.containers[0].lifecycle.postStart",
    ]
    assert (
        "STROM_POD_ROOT" in unsupported_fields.unsupported_paths(document, at_true_paths=False)[-1]
    )


def test_a_pod_without_a_command_cannot_run_here_since_images_are_not_used() -> None:
    for image in ("", "registry.example/train:1"):
        made = pod({"image": image, "command": [], "args": ["x"]})
        found = unsupported_fields.blocking_field(made, runs_images=True)
        assert "main has no command" in found


def test_a_pod_with_a_volume_of_another_kind_cannot_run_here() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    assert "data" in unsupported_fields.blocking_field(pod(volumes=[claim]), runs_images=True)
    made = pod(volumes=[{"name": "e", "emptyDir": {}}])
    assert unsupported_fields.blocking_field(made, runs_images=False) == ""


def test_a_null_in_a_pod_is_nothing() -> None:
    raw = b'{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "env": null}]}}'
    made, _ = pods.read(raw)
    assert made.spec.containers[0].env == ()
