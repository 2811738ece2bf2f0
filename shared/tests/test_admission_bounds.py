"""An object that is too large is rejected immediately with the limit that it exceeds, and no object
that fits an API server takes a second to review.
"""

from typing import Any

import msgspec
import pytest

from stromboli.shared.api import kinds
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import bounds, review
from stromboli.testkit import cpu_time
from stromboli.testkit.admission_cases import rules
from stromboli.testkit.admission_cases.manifests import job, queue, task

LONGEST_S = 1.0
POLICY = review.AdmissionPolicy(
    scheduler_names=("volcano",), plugins=job_plugins.load(), max_queue_depth=5
)
QUEUES = {
    each["metadata"]["name"]: kinds.QUEUES.decode(msgspec.json.encode(each))
    for each in rules.EXISTING_OBJECTS
}
KNOWN = review.ClusterContext(queues=QUEUES)
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def of_container(**changes: Any) -> dict[str, Any]:
    return job(tasks=[task(template={"spec": {"containers": [{"name": "c", **changes}]}})])


def of_pod(**changes: Any) -> dict[str, Any]:
    return job(tasks=[task(template={"spec": {"containers": [{"name": "c"}], **changes}})])


def cron(job_spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job_spec}},
    }


MANY_TASKS = job(tasks=[{"name": f"t{i}", "template": TEMPLATE} for i in range(5_000)])
TOO_LARGE: dict[str, tuple[dict[str, Any], str]] = {
    "empty tasks": (job(tasks=[{}] * 500_000), ""),
    "tasks": (MANY_TASKS, "spec.tasks"),
    "tasks of a cron": (cron(MANY_TASKS["spec"]), "spec.jobTemplate.spec.tasks"),
    "arguments": (
        of_container(args=["x"] * 10_001),
        "spec.tasks[0].template.spec.containers[0].args",
    ),
    "wrong arguments": (of_container(args=[1] * 700_000), ""),
    "environment": (
        of_container(env=[{"name": f"E{i}"} for i in range(3_000)]),
        "spec.tasks[0].template.spec.containers[0].env",
    ),
    "containers": (
        of_pod(containers=[{"name": f"c{i}"} for i in range(101)]),
        "spec.tasks[0].template.spec.containers",
    ),
    "plugins": (job(plugins={f"p{i}": [] for i in range(5_000)}), "spec.plugins"),
    "plugin arguments": (job(plugins={"svc": ["x"] * 10_001}), "spec.plugins.svc"),
    "unknown fields": ({**job(), "x": [{"a": 1}] * 300_000}, ""),
}
LARGE: dict[str, dict[str, Any]] = {
    "policies": job(policies=[{"event": "PodFailed", "action": "RestartJob"}] * 20_000),
    "wrong policies": job(policies=[{"event": "x", "action": "y"}] * 15_000),
    "wrong tasks": job(tasks=[{"name": "T_", "policies": [{}] * 40}] * 1_000),
    "wrong arguments": of_container(args=[1] * 10_000),
    "unknown policy fields": job(policies=[{f"f{i}": 1 for i in range(45_000)}]),
    "labels": job(
        tasks=[task(template={"metadata": {"labels": {f"_{i}": "_" for i in range(45_000)}}})]
    ),
    "selectors": of_pod(nodeSelector={f"_{i}": "_" for i in range(45_000)}),
    "volumes": job(volumes=[{"mountPath": "x", "volumeClaimName": "x"}] * 15_000),
    "dependencies": job(
        tasks=[
            task(name=f"t{i}", dependsOn={"name": [f"t{n}" for n in range(i)][-30:]})
            for i in range(1_000)
        ]
    ),
    "resources": queue("q", capability={f"r{i}": "1" for i in range(45_000)}),
    "wrong resources": queue("q", capability={f"r{i}": "x" for i in range(45_000)}),
}


def reviewed(document: dict[str, Any]) -> tuple[Any, float]:
    kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]

    def review_it() -> Any:
        review.default_patch(kind, document, POLICY, known=KNOWN)
        return review.violations(kind, "CREATE", document, None, KNOWN, POLICY)

    return cpu_time.measured(review_it, LONGEST_S)


@pytest.mark.parametrize("what", TOO_LARGE)
def test_an_object_beyond_a_limit_is_rejected_with_only_that_violation(what: str) -> None:
    document, path = TOO_LARGE[what]
    found, took_s = reviewed(document)
    assert [violation.path for violation in found] == [path]
    assert "at most" in found[0].expected or "more than" in found[0].reason
    assert took_s <= LONGEST_S


@pytest.mark.parametrize("what", LARGE)
def test_no_object_within_the_limits_takes_a_second(what: str) -> None:
    """A review stops after a thousand violations."""
    found, took_s = reviewed(LARGE[what])
    assert len(found) <= 2 * review.MAX_VIOLATIONS
    assert took_s <= LONGEST_S


def test_a_large_job_of_another_scheduler_passes_untouched() -> None:
    document = job(schedulerName="theirs", tasks=MANY_TASKS["spec"]["tasks"])
    assert reviewed(document)[0] == ()


def test_a_job_of_a_thousand_tasks_is_admitted() -> None:
    """The bounds are far above what people use."""
    tasks = [task(name=f"t{i}", template=TEMPLATE) for i in range(bounds.MAX_TASKS)]
    env = [{"name": f"A{i}", "value": "1"} for i in range(500)]
    container = {"name": "c", "image": "i", "args": ["x"] * 9_000, "env": env}
    tasks[0]["template"] = {"spec": {"containers": [container]}}
    assert reviewed(job(tasks=tasks, minAvailable=1))[0] == ()
