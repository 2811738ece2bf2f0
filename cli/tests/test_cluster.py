"""``strom cluster dump`` prints what scheduling reads, and no private data."""

import json
from typing import Any

from stromboli.shared.api import kinds


def test_a_dump_has_the_input_of_scheduling_and_no_secrets(api_server: Any, strom: Any) -> None:
    """Names, requests, labels, statuses and annotations of scheduling; no environment, command,
    foreign annotation or text of a condition."""
    secret = "hunter2"
    api_server.create(
        kinds.PODS,
        {
            "metadata": {
                "name": "p",
                "namespace": "default",
                "labels": {"app": "x"},
                "annotations": {
                    "scheduling.k8s.io/group-name": "g",
                    "example.com/token": secret,
                    "kubectl.kubernetes.io/last-applied-configuration": secret,
                },
            },
            "spec": {
                "schedulerName": "volcano",
                "containers": [
                    {
                        "name": "c",
                        "image": "busybox",
                        "command": ["sh", "-c", secret],
                        "env": [{"name": "PASSWORD", "value": secret}],
                        "resources": {"requests": {"cpu": "2"}},
                    }
                ],
            },
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "Ready", "status": "False", "message": secret}],
            },
        },
    )
    shown = strom("cluster", "dump")
    assert shown.exit_code == 0
    assert secret not in shown.stdout
    items = json.loads(shown.stdout)["items"]
    (pod,) = [item for item in items if item["kind"] == "Pod"]
    assert pod["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "g"}
    assert pod["metadata"]["labels"] == {"app": "x"}
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
    assert {item["metadata"]["name"] for item in items if item["kind"] == "Queue"} >= {"default"}
    assert "strom simulate session --objects FILE --config CONFIG --now " in shown.stderr
