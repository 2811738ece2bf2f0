"""Rules of the job that ``strom job run`` writes."""

import pytest

from stromboli.cli.job_specs.job_spec import RunSpec, document, generated_name
from stromboli.shared.jobspec import crds


def test_a_name_is_enough_for_a_complete_job() -> None:
    assert document(RunSpec(name="hello")) == {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "hello", "namespace": "default"},
        "spec": {
            "queue": "default",
            "tasks": [
                {
                    "replicas": 1,
                    "template": {
                        "metadata": {"labels": {"job.volcano.sh": "hello"}},
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [
                                {
                                    "name": "hello",
                                    "image": "busybox",
                                    "imagePullPolicy": "IfNotPresent",
                                    "resources": {"requests": {"cpu": "1", "memory": "100Mi"}},
                                }
                            ],
                        },
                    },
                }
            ],
        },
    }


def test_options_set_the_fields_of_volcano() -> None:
    spec = RunSpec(
        name="hello",
        minimum=2,
        replicas=4,
        queue="research",
        priority_class="high",
        run_seconds=0.5,
        exit_code=3,
        command=("sleep", "5"),
    )
    made = document(spec)["spec"]
    assert (made["minAvailable"], made["queue"], made["priorityClassName"]) == (
        2,
        "research",
        "high",
    )
    (task,) = made["tasks"]
    assert task["replicas"] == 4
    assert task["template"]["metadata"]["annotations"] == {
        "stromboli.sh/run-seconds": "0.5",
        "stromboli.sh/exit-code": "3",
    }
    assert task["template"]["spec"]["containers"][0]["command"] == ["sleep", "5"]


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({}, {}, {"requests": {"cpu": "1", "memory": "100Mi"}}),
        ({"cpu": "4"}, {}, {"requests": {"cpu": "4"}}),
        ({}, {"cpu": "2"}, {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}),
        ({"cpu": "1"}, {"cpu": "2"}, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
    ],
)
def test_no_default_request_is_ever_above_a_limit(
    requests: dict[str, str], limits: dict[str, str], expected: dict[str, dict[str, str]]
) -> None:
    made = document(RunSpec(name="a", requests=requests, limits=limits))
    (container,) = made["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert container["resources"] == expected


def test_the_job_is_right_by_its_schema() -> None:
    spec = RunSpec(name="a", minimum=1, run_seconds=3, limits={"cpu": "1"}, command=("true",))
    assert crds.violations("batch.volcano.sh", "Job", document(spec)) == ()


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "busybox-x"),
        ("registry:5000/a/My_Tool:1.2", "my-tool-x"),
        ("tool@sha256:abc", "tool-x"),
        ("7zip", "job-7zip-x"),
        ("_", "job-x"),
        ("a" * 80, "a" * 40 + "-x"),
    ],
)
def test_a_generated_name_contains_the_command_and_is_a_dns_label(image: str, name: str) -> None:
    assert generated_name(image, "x") == name
