"""Rules of ``strom apply``."""

from pathlib import Path
from typing import Any

QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: research}
spec: {weight: 2}
"""
JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train}
spec:
  queue: research
  tasks:
  - name: worker
    replicas: 2
    template:
      spec:
        restartPolicy: Never
        containers:
        - {name: main, image: busybox}
"""


def test_a_queue_and_its_job_in_one_manifest_are_created_together(
    api_server: Any, strom: Any
) -> None:
    applied = strom("apply", "-f", "-", stdin=QUEUE + "---" + JOB)
    assert (applied.exit_code, applied.stdout) == (
        0,
        "queue.scheduling.volcano.sh/research created\njob.batch.volcano.sh/train created\n",
    )
    assert api_server.job("train").spec.queue == "research"


def test_applying_again_changes_only_what_is_new(strom: Any) -> None:
    strom("apply", "-f", "-", stdin=QUEUE)
    again = QUEUE.replace("weight: 2", "weight: 3")
    assert strom("apply", "-f", "-", stdin=QUEUE).stdout.endswith("research unchanged\n")
    assert strom("apply", "-f", "-", stdin=again).stdout.endswith("research configured\n")


def test_several_files_go_in_one_request_in_their_order(strom: Any, tmp_path: Path) -> None:
    for name, text in (("a-job.yaml", JOB), ("b-queue.yaml", QUEUE)):
        (tmp_path / name).write_text(text)
    applied = strom(
        "apply", "-f", str(tmp_path / "b-queue.yaml"), "-f", str(tmp_path / "a-job.yaml")
    )
    assert applied.exit_code == 0
    assert applied.stdout.splitlines()[0].startswith("queue")


def test_nothing_is_written_if_anything_is_wrong_and_every_thing_has_its_line(
    strom: Any, tmp_path: Path
) -> None:
    file = tmp_path / "both.yaml"
    wrong = JOB.replace("queue: research", "queue: absent").replace("replicas: 2", "replicas: -1")
    file.write_text(QUEUE + "---" + wrong)
    refused = strom("apply", "-f", str(file))
    assert (refused.exit_code, refused.stdout) == (1, "")
    first, *details, last = refused.stderr.splitlines()
    assert first.startswith("strom: manifests: rejected with ")
    assert any(line.startswith(f"  {file}:11: Job train: spec.queue: ") for line in details), (
        refused.stderr
    )
    assert any(
        line.startswith(f"  {file}:14: Job train: spec.tasks[0].replicas: ") for line in details
    ), refused.stderr
    assert last == "next: correct the errors and try again; nothing was written"
    assert strom("queue", "get", "research").exit_code == 1


def test_the_namespace_is_for_objects_that_name_none(api_server: Any, strom: Any) -> None:
    api_server.create_namespace("other")
    strom("apply", "-f", "-", stdin=QUEUE)
    assert strom("apply", "-n", "other", "-f", "-", stdin=JOB).exit_code == 0
    assert api_server.job("train", "other").metadata.namespace == "other"
    placed = JOB.replace("{name: train}", "{name: train, namespace: mine}")
    refused = strom("apply", "-n", "other", "-f", "-", stdin=placed)
    assert refused.exit_code == 1
    assert refused.stderr == (
        "strom: stdin:4: Job train is in namespace mine, not in other\n"
        "next: remove metadata.namespace or -n, or use: -n mine\n"
    )


def test_a_kind_that_is_not_known_is_refused_with_the_known_ones(strom: Any) -> None:
    refused = strom("apply", "-f", "-", stdin="apiVersion: apps/v1\nkind: Deployment\n")
    assert refused.exit_code == 1
    assert (
        "stdin:2: Deployment without a name: kind: apps/v1 Deployment is unknown" in refused.stderr
    )
    assert "batch.volcano.sh/v1alpha1 Job" in refused.stderr


def test_a_file_is_needed(strom: Any) -> None:
    assert strom("apply").exit_code == 2
    assert strom("apply", "-f", "absent.yaml").exit_code == 1


def test_a_claim_template_is_created_like_any_other_object(strom: Any) -> None:
    template = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two-gpus}
spec:
  spec:
    devices:
      requests:
      - {name: gpus, exactly: {deviceClassName: gpu.example.com, count: 2}}
"""
    applied = strom("apply", "-f", "-", stdin=template)
    assert applied.stdout == "resourceclaimtemplate.resource.k8s.io/two-gpus created\n"
    assert strom("claimtemplate", "list").stdout.splitlines()[1].split()[:3] == [
        "two-gpus",
        "2",
        "gpu.example.com",
    ]
