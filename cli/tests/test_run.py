"""Rules of what ``strom job run`` makes of options, scripts and manifests."""

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from stromboli.cli.client import ForbiddenError
from stromboli.cli.commands.jobs import job_check
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.client.responses import Applied
from stromboli.shared.api import kinds
from stromboli.shared.messages.admission import Violation


def manifest(strom: Any, *arguments: str) -> Any:
    ran = strom("job", "run", "--dry-run", *arguments)
    assert (ran.exit_code, ran.stderr) == (0, "")
    return yaml.safe_load(ran.stdout)


def container(document: Any) -> Any:
    return document["spec"]["tasks"][0]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("nodes", ["4", "2-4"])
def test_numbers_of_nodes_as_in_slurm_are_no_names(strom: Any, nodes: str) -> None:
    """A job of one pod with the name 4 would run instead of one on 4 nodes."""
    refused = strom("job", "run", "-N", nodes, "--dry-run", "--", "hostname")
    assert refused.exit_code == 2
    assert "not a number of nodes as in Slurm: write --replicas" in " ".join(refused.stderr.split())


def test_gpus_cores_memory_and_time_in_short(strom: Any) -> None:
    made = manifest(
        strom, "a", "--gpus", "8", "--cpus", "16", "--memory", "64Gi", "--time", "1h30m",
        "--replicas", "2", "--priority", "high", "--queue", "research", "--workdir", "/data",
        "--env", "A=1", "--env", "B=x=y", "--", "python", "train.py",
    )  # fmt: skip
    assert container(made)["resources"] == {
        "requests": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"},
        "limits": {"nvidia.com/gpu": "8"},
    }
    assert container(made)["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "x=y"}]
    assert container(made)["workingDir"] == "/data"
    assert container(made)["command"] == ["python", "train.py"]
    spec = made["spec"]
    assert (spec["activeDeadlineSeconds"], spec["runningEstimate"]) == (5400, "5400s")
    assert (spec["queue"], spec["priorityClassName"]) == ("research", "high")
    assert spec["tasks"][0]["replicas"] == 2


def test_a_dry_run_needs_no_server_and_its_manifest_can_be_applied(
    api_server: Any, strom: Any, tmp_path: Path
) -> None:
    ran = strom("job", "run", "a", "--dry-run", "--server", "http://127.0.0.1:1")
    file = tmp_path / "a.yaml"
    file.write_text(ran.stdout)
    assert strom("apply", "-f", str(file)).stdout == "job.batch.volcano.sh/a created\n"
    as_json = strom("job", "run", "a", "--dry-run", "-o", "json").stdout
    assert json.loads(as_json) == yaml.safe_load(ran.stdout)


def test_a_job_may_depend_on_others_with_the_conditions_of_slurm(
    api_server: Any, strom: Any
) -> None:
    made = manifest(strom, "b", "--dependency", "afterok:a:c,afterany:d")
    assert made["metadata"]["annotations"] == {"stromboli.sh/after": "afterok:a:c,afterany:d"}
    wrong = strom("job", "run", "b", "-d", "afterburner:a")
    assert wrong.exit_code == 2
    assert "is not a condition" in " ".join(wrong.stderr.split())
    missing = strom("job", "run", "b", "-d", "afterok:nobody")
    assert missing.exit_code == 1
    assert "there is no job nobody" in " ".join(missing.stderr.split())
    assert strom("job", "run", "a").exit_code == 0
    assert strom("job", "run", "b", "-d", "afterok:a").exit_code == 0


def test_retries_restart_the_job_and_of_an_array_each_index(api_server: Any, strom: Any) -> None:
    """``maxRetry`` of a job counts its first attempt, ``maxRetries`` of an index does not."""
    made = manifest(strom, "a", "--retries", "2", "--", "false")
    assert made["spec"]["maxRetry"] == 3
    assert made["spec"]["policies"] == [{"event": "PodFailed", "action": "RestartJob"}]
    made = manifest(strom, "b", "--array", "0-9", "--retries", "2", "--", "false")
    assert made["spec"]["array"] == {"indexes": "0-9", "maxRetries": 2}
    assert "policies" not in made["spec"]
    assert "maxRetry" not in manifest(strom, "c", "--retries", "0", "--", "false")["spec"]
    assert strom("job", "run", "a", "--retries", "2", "--", "false").exit_code == 0
    assert api_server.job("a").spec.max_retry == 3


def test_an_array_limits_its_concurrency(api_server: Any, strom: Any) -> None:
    spec = manifest(strom, "a", "--array", "0-999%50")["spec"]
    assert (spec["array"], spec["tasks"][0]["replicas"]) == ({"indexes": "0-999"}, 50)
    assert spec["minAvailable"] == 1
    assert manifest(strom, "a", "--array", "1,3,5")["spec"]["tasks"][0]["replicas"] == 3
    assert strom("job", "run", "a", "--array", "0-9%2").exit_code == 0
    assert api_server.job("a").spec.array.indexes == "0-9"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--array", "9-1"), "ends before it begins"),
        (
            ("--array", "x"),
            "'x' is not an index or range; write indexes such as 0-999, 1,3,5-7 or "
            "0-100:10, 1 to 10000 of them",
        ),
        (("--array", "0-9%none"), "'none' after % is not a number"),
        (("--array", "0-9", "--replicas", "2"), "of an array with %"),
        (("--time", "soon"), "'soon' is not a duration"),
        (("--time", "-5m"), "is not a positive duration"),
        (("--memory", "16"), "a memory of 16 bytes is too small; write 16Gi or 16Mi"),
        (("--memory", "many"), "'many' is not a quantity"),
        (("--cpus", "2", "--requests", "cpu=1"), "cpu is in --requests too"),
        (("--env", "STROM_NOT_SET"), "STROM_NOT_SET is not set in this shell"),
        (("--env", "=1"), "'=1' has no name"),
        (
            ("--env", "1A=3"),
            "'--env' / '-e': '1A' is not the name of a variable; use letters, digits, _, - "
            "and ., and do not start with a digit",
        ),
        (("--env", "A B=3"), "'A B' is not the name of a variable"),
        (("--check", "--wait"), "set at most one of them"),
        (("--timeout", "5s"), "requires --wait"),
    ],
)
def test_invalid_options_are_reported(strom: Any, arguments: tuple[str, ...], said: str) -> None:
    refused = strom("job", "run", "a", *arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_a_variable_without_a_value_is_copied_from_the_environment(strom: Any) -> None:
    ran = strom("job", "run", "a", "--dry-run", "-e", "TOKEN", env={"TOKEN": "of mine"})
    assert container(yaml.safe_load(ran.stdout))["env"] == [{"name": "TOKEN", "value": "of mine"}]


def write(text: str) -> str:
    Path("train.sh").write_text(text)
    return "train.sh"


def test_a_job_without_a_name_an_image_and_a_command_is_a_usage_error(strom: Any) -> None:
    """Its pods would run nothing."""
    refused = strom("job", "run", "--cpus", "2")
    assert refused.exit_code == 2
    assert "a command, a script or a manifest is missing" in refused.stderr
    assert strom("job", "run").exit_code == 2


def test_a_scripts_lines_are_options_and_the_command_line_wins(strom: Any) -> None:
    name = write("#!/bin/bash\n#STROM --gpus 8 --replicas 4\n#STROM --env A=1\necho $1\n")
    made = manifest(strom, name, "--gpus", "2", "-e", "B=2", "--", "first")
    assert made["metadata"]["name"].startswith("train-")
    assert made["spec"]["tasks"][0]["replicas"] == 4
    assert container(made)["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert [each["name"] for each in container(made)["env"]] == ["A", "B"]
    command = container(made)["command"]
    assert (command[:2], command[3:]) == (["/bin/bash", "-c"], ["train.sh", "first"])
    assert command[2] == Path(name).read_text()


def test_a_script_notes_where_it_was_submitted(strom: Any) -> None:
    """Process nodes start it there, as sbatch does; a command of an image has no such place."""

    def noted(*arguments: str) -> str | None:
        made = manifest(strom, *arguments)
        metadata = made["spec"]["tasks"][0]["template"]["metadata"]
        found = metadata.get("annotations", {}).get("stromboli.sh/submit-directory")
        return found if found is None else str(found)

    name = write("#!/bin/sh\necho\n")
    assert noted(name) == str(Path.cwd())
    assert noted(name, "--workdir", "/data") is None
    assert noted("train", "--", "hostname") is None


def test_a_script_may_name_its_job(strom: Any) -> None:
    made = manifest(strom, write("#!/bin/sh\n#STROM --name nightly\necho\n"))
    assert made["metadata"]["name"] == "nightly"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--gpu 8", "No such option: --gpu"),
        ("--replicas many", "Invalid value for '--replicas'"),
        ("--queue", "Option '--queue' requires an argument"),
        ("eight", "'eight' is not an option"),
        ("--server http://a", "--server is not allowed in a script"),
        ("--wait", "--wait is not allowed in a script"),
        ("--output yaml", "--output is not allowed in a script"),
        ("--help", "--help is not allowed in a script"),
        ("--gpus x", "Invalid value for '--gpus' / '-g': 'x' is not a whole number"),
        ("--output x", "Invalid value for '--output' / '-o': 'x' is not one of 'table', "),
        ("--time 4x", "Invalid value for '--time': '4x' is not a duration"),
        ("--time 0", "Invalid value for '--time': 0 is not a positive duration"),
        ("--cpus many", "Invalid value for '--cpus' / '-c': 'many' is not a quantity"),
        ("--requests cpu", "Invalid value for '--requests' / '-R': 'cpu' is not a resource"),
        ("--array 5-1", "Invalid value for '--array' / '-a': '5-1' ends before it begins"),
        ("--env =1", "Invalid value for '--env' / '-e': '=1' has no name"),
        ("--dependency after", "Invalid value for '--dependency' / '-d': 'after' names no job"),
    ],
)
def test_an_invalid_script_line_is_reported_with_file_and_line(
    strom: Any, line: str, said: str
) -> None:
    refused = strom("job", "run", write(f"#!/bin/sh\n\n#STROM {line}\n"))
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"strom: train.sh:3: {said}")
    assert "\nnext: " in refused.stderr


def test_conflicting_options_are_reported_with_their_lines(
    strom: Any,
) -> None:
    """An option of the command line has no line."""
    lines = "#!/bin/sh\n#STROM --replicas 2\n#STROM --cpus 1\n#STROM --memory 8Gi\n"
    array = strom("job", "run", write(lines), "--array", "0-3")
    assert array.stderr.startswith(
        "strom: train.sh:2: Invalid value for --replicas: set the parallelism"
    )
    twice = strom("job", "run", write(lines), "--requests", "cpu=1")
    assert twice.stderr.startswith("strom: train.sh:3, train.sh:4: Invalid value for --cpus")
    own = strom("job", "run", write("#!/bin/sh\n#STROM --array 0-3\n"), "--replicas", "2")
    assert own.stderr.startswith(
        "strom: job run: Invalid value for --replicas: set the parallelism"
    )
    assert {array.exit_code, twice.exit_code, own.exit_code} == {2}


def test_an_unreadable_script_is_reported(strom: Any) -> None:
    absent = strom("job", "run", "absent.sh")
    assert (absent.exit_code, absent.stderr) == (
        1,
        "strom: absent.sh: No such file or directory\nnext: specify a readable script\n",
    )
    Path("program.bin").write_bytes(b"\xff\xfe")
    assert "not text: byte 0" in strom("job", "run", "program.bin").stderr
    assert strom("job", "run", write("#!/usr/bin/perl\n")).exit_code == 2


def test_run_shows_the_stored_job_and_can_wait_for_its_end(api_server: Any, strom: Any) -> None:
    stored = json.loads(strom("job", "run", "a", "-o", "json").stdout)
    assert stored["metadata"]["uid"] == api_server.job("a").metadata.uid
    assert strom("job", "run", "b", "-o", "name").stdout == "job.batch.volcano.sh/b\n"
    waited = strom("job", "run", "c", "--wait", "--timeout", "0.2s")
    assert waited.exit_code == 124
    assert waited.stdout == "job.batch.volcano.sh/c created\n"


NODE = {
    "metadata": {"name": "n1"},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


@pytest.fixture
def node(api_server: Any) -> None:
    """One node of four cores."""
    api_server.create(kinds.NODES, NODE)


@pytest.mark.usefixtures("node")
def test_check_reports_that_a_job_would_start_and_its_nodes(api_server: Any, strom: Any) -> None:
    checked = strom("job", "run", "a", "--replicas", "3", "--check")
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert checked.stdout.splitlines() == [
        "default/a would be admitted.",
        "It would start now: 3 of 3 pods, 3 on n1.",
        "  scheduler  configuration: built in",
    ]
    assert strom("job", "list").stderr == "No jobs found in namespace default.\n"
    alone = strom("job", "run", "a", "--check").stdout.splitlines()
    assert alone[1] == "It would start now: 1 of 1 pod, 1 on n1."


@pytest.mark.usefixtures("node")
def test_check_reports_what_would_block_a_job(strom: Any) -> None:
    checked = strom("job", "run", "a", "--replicas", "5", "--check")
    assert checked.exit_code == 4
    first, second, *facts = checked.stdout.splitlines()
    assert first == "default/a would be admitted."
    assert second.startswith("default/a would be pending: ")
    assert any("cpu: needs 5, free 4 of 4: short by 1" in fact for fact in facts)
    verdict = json.loads(strom("job", "run", "a", "-r", "5", "--check", "-o", "json").stdout)
    assert (verdict["pods"], verdict["nodes"]) == (5, {})


def test_check_reports_all_violations_like_run(strom: Any) -> None:
    checked = strom("job", "run", "a", "--queue", "absent", "--check")
    assert checked.exit_code == 1
    assert checked.stderr.startswith("strom: job default/a: rejected with 1 error\n")


@pytest.mark.usefixtures("node")
def test_check_uses_the_given_configuration(strom: Any) -> None:
    Path("ours.conf").write_text(
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n'
    )
    checked = strom("job", "run", "a", "--check", "--scheduler-configuration", "ours.conf")
    assert "  scheduler  configuration: ours.conf" in checked.stdout
    Path("ours.conf").write_text("actions: nothing\n")
    broken = strom("job", "run", "a", "--check", "--scheduler-configuration", "ours.conf")
    assert broken.exit_code == 1
    assert broken.stderr.startswith(
        "strom: ours.conf: it is not a valid scheduler configuration\n  ours.conf:1: "
    )


def test_check_without_rights_on_the_cluster_reports_admission_only() -> None:
    """Not which twenty rights are missing for the rest."""

    class Tenant:
        def check(self, documents: Any) -> Any:
            return [Applied("Job", "default", "a", "accepted", msgspec.Raw(b"{}"))]

        def scheduling_input(self) -> Any:
            missing = tuple(Violation(path="rights", reason=f"r{n}") for n in range(20))
            raise ForbiddenError("the cluster", missing)

    with pytest.raises(CommandError) as caught:
        job_check.check(cast("Any", Tenant()), {}, None, output.Format.TABLE)
    news = caught.value.lines()
    assert len(news) == 2
    assert news[0].startswith("strom: job default/a: it would be admitted; the dry run of ")


def test_a_job_that_is_accepted_with_warnings_shows_them(strom: Any, tmp_path: Path) -> None:
    """As ``kubectl apply`` and ``strom apply`` do, on stderr."""
    document = manifest(strom, "a")
    document["spec"]["plugins"] = {"ssh": ["--no-root"]}
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(document))
    ran = strom("job", "run", "-f", str(file))
    assert ran.exit_code == 0, ran.stderr
    assert ran.stderr.startswith("Warning: spec.plugins.ssh: --no-root: unknown, so ignored")


def test_data_sets_are_given_in_one_word_each(strom: Any) -> None:
    made = manifest(
        strom, "a", "--data", "images=s3://bucket/images,v=2:/data,size=12Gi,locality=Required",
        "--data", "w=file:///srv/w:/w,sharing=Share", "--data", "out=claim:results:/out,write",
    )  # fmt: skip
    assert made["spec"]["dataSets"] == [
        {
            "name": "images",
            "uri": "s3://bucket/images,v=2",
            "mountPath": "/data",
            "size": "12Gi",
            "locality": "Required",
        },
        {"name": "w", "uri": "file:///srv/w", "mountPath": "/w", "sharing": "Share"},
        {
            "name": "out",
            "persistentVolumeClaim": "results",
            "mountPath": "/out",
            "readOnly": False,
        },
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s3://bucket/images:/data", "has no name"),
        ("images", "has no name"),
        ("=s3://bucket/images:/data", "has no name"),
        ("images=s3://bucket/images", "has no mount path"),
        ("images=/srv/images:/data", "has no mount path"),
        ("images=s3://b/i:/data,size=1,size=2", "size is set twice"),
        ("images=s3://b/i:/data,write", "only read"),
    ],
)
def test_a_data_set_in_another_form_is_an_error(strom: Any, text: str, why: str) -> None:
    ran = strom("job", "run", "a", "--dry-run", "--data", text)
    assert ran.exit_code == 2
    assert why in ran.stderr.replace("\n", " ")
