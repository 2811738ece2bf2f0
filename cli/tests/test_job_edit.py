"""Rules of ``strom job set``, ``edit``, ``resubmit`` and ``retry``."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.cli.job_specs import job_fields, job_reference, three_way
from stromboli.shared import keys
from stromboli.shared.api import kinds

ARRAY = ("job", "run", "sweep", "--array", "0-9%4")


@pytest.fixture(autouse=True)
def edited_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edited texts are in the test's folder. Python reads ``TMPDIR`` once for the whole process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def editor(tmp_path: Path, *steps: str) -> dict[str, str | None]:
    """An editor that runs one shell step per call, with the file as ``$1``."""
    program = tmp_path / "editor"
    counter = tmp_path / "calls"
    cases = "".join(f"{n}) {step} ;;\n" for n, step in enumerate(steps, 1))
    program.write_text(
        f'#!/bin/sh\necho x >> {counter}\ncalls=$(wc -l < {counter} | tr -d " ")\n'
        f'cp "$1" {tmp_path}/seen-$calls\ncase $calls in\n{cases}esac\n'
    )
    program.chmod(0o755)
    return {"VISUAL": None, "EDITOR": str(program)}


def test_set_changes_priority_and_replicas_together(api_server: Any, strom: Any) -> None:
    api_server.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 5})
    strom("job", "run", "a", "-r", "2")
    changed = strom("job", "set", "a", "priority=high", "replicas=4")
    assert changed.stdout == "job.batch.volcano.sh/a configured\n"
    spec = api_server.job("a").spec
    assert (spec.priority_class_name, spec.tasks[0].replicas, spec.min_available) == ("high", 4, 4)


def test_set_changes_the_queue_of_a_job_that_waits(api_server: Any, strom: Any) -> None:
    strom("queue", "create", "research")
    strom("job", "run", "a")
    api_server.set_status("a", "Pending")
    assert strom("job", "set", "a", "queue=research").exit_code == 0
    assert api_server.job("a").spec.queue == "research"
    api_server.set_status("a", "Running")
    assert strom("job", "set", "a", "queue=default").stderr == (
        "strom: job default/a: rejected with 1 error\n"
        "  queue: the job is Running, and the queue can change only while the job waits; "
        "suspend it first (strom job suspend a), and resume it in the other queue; or submit a "
        "new job\n"
        "next: correct the errors and try again; nothing was written\n"
    )


def test_set_changes_the_time_limit_with_the_estimate_of_the_scheduler(
    api_server: Any, strom: Any
) -> None:
    strom("job", "run", "a", "--time", "1h")
    assert strom("job", "set", "a", "time-limit=4h").exit_code == 0
    spec = api_server.job("a").spec
    assert (spec.active_deadline_seconds, spec.running_estimate) == (4 * 3600, "14400s")


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
def test_a_job_that_has_ended_is_not_changed_and_the_next_step_submits_it_again(
    api_server: Any, strom: Any, phase: str
) -> None:
    strom("job", "run", "a")
    api_server.set_status("a", phase)
    refused = strom("job", "set", "a", "time-limit=4h", "replicas=2")
    assert (refused.exit_code, refused.stderr.splitlines()) == (
        1,
        [
            f"strom: job default/a: the job is {phase}: change is not possible after the end of a "
            "job",
            "next: submit it again with these values: "
            "strom job resubmit a time-limit=4h replicas=2 -n default",
        ],
    )
    scaled = strom("job", "scale", "a", "--replicas", "3", "--task", "default0")
    assert "strom job resubmit a replicas.default0=3 -n default" in scaled.stderr


@pytest.mark.parametrize(
    "word", ["queue", "colour=red", "replicas=x", "time-limit=0", "min=-1", "replicas.none=2"]
)
def test_an_unknown_field_or_value_is_a_usage_error(strom: Any, word: str) -> None:
    strom("job", "run", "a")
    assert strom("job", "set", "a", word).exit_code == 2


def test_resubmit_creates_a_new_job_of_the_same_spec_without_what_is_of_the_old_one(
    api_server: Any, strom: Any
) -> None:
    strom("job", "run", "a", "-r", "2", "--", "true")
    api_server.label("a", team="vision")
    api_server.annotate("a", **{keys.HELD: "FailedCreate: quota", "note": "kept"})
    api_server.set_status("a", "Completed")
    made = strom("job", "resubmit", "a", "time-limit=2h", "replicas=3", "--name", "b")
    assert made.stdout == "job.batch.volcano.sh/b created\n"
    old, new = api_server.job("a"), api_server.job("b")
    assert new.spec.tasks[0].template == old.spec.tasks[0].template
    assert (new.spec.active_deadline_seconds, new.spec.min_available) == (7200, 3)
    assert new.metadata.labels == {"team": "vision"}
    assert new.metadata.annotation("note") == "kept"
    assert new.metadata.annotation(keys.HELD) is None
    assert strom("job", "resubmit", "a").stdout.startswith("job.batch.volcano.sh/a-")


def test_a_new_job_does_not_use_the_claim_that_was_created_for_the_old_one() -> None:
    volume = {"mountPath": "/x", "volumeClaim": {"a": 1}, "volumeClaimName": "a-claim"}
    own = {"mountPath": "/y", "volumeClaimName": "mine"}
    stored = {"metadata": {"namespace": "n"}, "spec": {"volumes": [volume, own]}}
    made = job_fields.same_job(stored, "b")["spec"]["volumes"]
    assert made == [{"mountPath": "/x", "volumeClaim": {"a": 1}}, own]


@pytest.mark.parametrize(
    ("words", "indexes"), [(("sweep", "--failed"), "3,7-8"), (("sweep[0,3]",), "0,3")]
)
def test_retry_submits_ended_indexes_as_a_new_array(
    api_server: Any, strom: Any, words: tuple[str, ...], indexes: str
) -> None:
    strom(*ARRAY)
    api_server.set_status("sweep", "Failed", array={"succeeded": "0-2", "failed": "3,7-8"})
    assert strom("job", "retry", *words, "--name", "again").exit_code == 0
    spec = api_server.job("again").spec
    assert spec.array.indexes == indexes
    assert spec.tasks[0].replicas == len(job_reference.split(f"j[{indexes}]")[1] or ())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sweep[12]",), "it has no index 12; its indexes are 0-9"),
        (("sweep[4]",), "these indexes have not ended: 4"),
        (("sweep", "--failed"), "no index has failed"),
        (("plain", "--failed"), "it is not an array"),
    ],
)
def test_retry_refuses_indexes_that_have_not_ended(
    api_server: Any, strom: Any, words: tuple[str, ...], why: str
) -> None:
    strom(*ARRAY)
    strom("job", "run", "plain")
    api_server.set_status("sweep", "Running", array={"succeeded": "0-2"})
    refused = strom("job", "retry", *words)
    assert (refused.exit_code, why in refused.stderr) == (1, True)


def test_indexes_of_an_array_are_cancelled_and_can_run_again(api_server: Any, strom: Any) -> None:
    """As ``scancel 123_[4-5]``. An index that has ended keeps its result."""
    strom(*ARRAY)
    api_server.set_status("sweep", "Running", array={"succeeded": "0-2"})
    cancelled = strom("job", "cancel", "sweep[2,4-5]", "sweep[7]")
    assert cancelled.stdout == (
        "job.batch.volcano.sh/sweep[2,4-5] cancelled\njob.batch.volcano.sh/sweep[7] cancelled\n"
    )
    assert api_server.job("sweep").spec.array.cancelled == "4-5,7"
    assert "3 of 7 indexes succeeded, 3 cancelled: 4-5,7" in strom("job", "get", "sweep").stdout
    assert " 3/7 " in strom("job", "list").stdout
    assert strom("job", "retry", "sweep[4]", "--name", "again").exit_code == 0
    array = api_server.job("again").spec.array
    assert (array.indexes, array.cancelled) == ("4", "")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("sweep[0-1]", "0-1: nothing to cancel, these indexes have ended"),
        ("sweep[8-12]", "the array has no index 10-12; indexes of 0-9"),
        ("plain[0]", "the job is not an array; delete the job"),
    ],
)
def test_indexes_that_have_ended_or_do_not_exist_are_not_cancelled(
    api_server: Any, strom: Any, words: str, why: str
) -> None:
    strom(*ARRAY)
    strom("job", "run", "plain")
    api_server.set_status("sweep", "Running", array={"succeeded": "0-2"})
    refused = strom("job", "cancel", words)
    assert (refused.exit_code, why in refused.stderr) == (1, True), refused.stderr


def test_an_index_of_an_array_that_has_ended_can_only_run_again(
    api_server: Any, strom: Any
) -> None:
    """There are no values with which the array would be submitted again."""
    strom(*ARRAY)
    api_server.set_status("sweep", "Failed", array={"succeeded": "0-2"})
    refused = strom("job", "cancel", "sweep[3]").stderr
    assert "next: run the indexes again: strom job retry 'sweep[3]' -n default\n" in refused


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        ("sweep[0,2]", 0, "default/sweep[0,2]: 2 succeeded: 0,2\n"),
        ("sweep[2-5]", 1, "default/sweep[2-5]: 1 succeeded: 2, 1 failed: 3, 2 cancelled: 4-5\n"),
    ],
)
def test_a_wait_for_indexes_ends_when_they_have_ended(
    api_server: Any, strom: Any, words: str, code: int, shown: str
) -> None:
    strom(*ARRAY)
    api_server.set_status("sweep", "Running", array={"succeeded": "0-2", "failed": "3"})
    strom("job", "cancel", "sweep[4-5]")
    waited = strom("job", "wait", words)
    assert (waited.exit_code, waited.stdout) == (code, shown)
    assert strom("job", "wait", "sweep[12]").stderr.startswith(
        "strom: job default/sweep: it has no index 12\n"
    )
    assert strom("job", "wait", "sweep[7]", "--timeout", "0s").exit_code == 124


def test_single_indexes_select_pods_in_logs_and_get(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    for index in range(3):
        api_server.start_pod("a", index, f"from {index}\n".encode())
    assert strom("job", "logs", "a[0,2]", "--no-prefix").stdout == "from 0\nfrom 2\n"
    shown = strom("job", "get", "a[1]").stdout
    assert ("a-w-1" in shown, "a-w-2" in shown) == (True, False)
    assert strom("job", "logs", "a[1]", "--index", "2").exit_code == 2
    assert strom("job", "logs", "a[x]").exit_code == 2


def test_edit_sends_only_the_changed_fields(api_server: Any, strom: Any, tmp_path: Path) -> None:
    strom("job", "run", "a", "-r", "2")
    env = editor(tmp_path, 'sed -i "s/replicas: 2/replicas: 5/" "$1"')
    edited = strom("job", "edit", "a", env=env)
    assert (edited.stdout, edited.exit_code) == ("job.batch.volcano.sh/a configured\n", 0)
    assert api_server.job("a").spec.tasks[0].replicas == 5
    assert not list(tmp_path.glob("strom-a-*")), "the text is removed after success"
    assert strom("job", "edit", "a", env={"EDITOR": "true"}).stdout.endswith("unchanged\n")


def test_an_edit_that_is_refused_opens_the_text_again_with_the_reason_and_keeps_it(
    strom: Any, tmp_path: Path
) -> None:
    strom("job", "run", "a")
    env = editor(tmp_path, 'sed -i "s/queue: default/queue: other/" "$1"')
    refused = strom("job", "edit", "a", env=env)
    assert refused.exit_code == 1
    assert "spec.queue" in (tmp_path / "seen-2").read_text().splitlines()[1]
    assert "queue 'other' does not exist" in refused.stderr
    (kept,) = tmp_path.glob("strom-a-*")
    assert refused.stderr.endswith(f"your text is in {kept}\n")
    assert "queue: other" in kept.read_text()


@pytest.mark.parametrize("field", ["replicas", "label"])
def test_an_edit_overwrites_no_concurrent_change_of_the_same_field_unasked(
    api_server: Any, strom: Any, tmp_path: Path, field: str
) -> None:
    strom("job", "run", "a", "-r", "2")

    async def concurrent_change() -> None:
        path = "/spec/tasks/0/replicas" if field == "replicas" else "/metadata/labels"
        value: Any = 7 if field == "replicas" else {"team": "vision"}
        patch = json.dumps([{"op": "add", "path": path, "value": value}]).encode()
        await asyncio.ensure_future(
            api_server._cluster.patch(kinds.JOBS, "default", "a", patch, patch_type="json")
        )

    api_server.once_answered("/v1/namespaces/default/jobs/a", concurrent_change)
    change = 'sed -i "s/replicas: 2/replicas: 5/" "$1"'
    overwrite = 'echo "# mine" >> "$1"'
    edited = strom("job", "edit", "a", env=editor(tmp_path, change, overwrite))
    assert edited.exit_code == 0
    job = api_server.job("a")
    assert job.spec.tasks[0].replicas == 5
    reopened = tmp_path / "seen-2"
    if field == "label":
        assert job.metadata.labels == {"team": "vision"}
        assert not reopened.exists()
    else:
        text = reopened.read_text()
        assert text.startswith("#| spec.tasks[0].replicas: changed meanwhile")
        assert "replicas: 5" in text, "the user's text is kept"


def test_a_partial_document_holds_only_what_differs() -> None:
    before = {"a": 1, "b": {"c": 1, "d": 2}, "l": [{"x": 1, "y": 2}, {"x": 3}], "m": [1, 2]}
    wanted = {"a": 1, "b": {"c": 1, "d": 3}, "l": [{"x": 1, "y": 9}, {"x": 3}], "m": [1]}
    found = three_way.partial(before, wanted)
    assert found == {"b": {"d": 3}, "l": [{"y": 9}, {}], "m": [1]}
    assert three_way.overlap(found, {"b": {"c": 5}, "l": [{}, {"x": 4}]}) == []
    assert three_way.overlap(found, {"b": {"d": 5}, "l": [{"y": 4}, {}]}) == ["b.d", "l[0].y"]
    assert list(three_way.removed(before, {"b": {"c": 1}, "l": [{"x": 1}, {"x": 3}]})) == [
        "a", "b.d", "l[0].y", "m",
    ]  # fmt: skip
    assert msgspec.json.encode(three_way.partial(before, before)) == b"{}"
