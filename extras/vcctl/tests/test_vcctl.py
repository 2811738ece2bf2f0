"""Rules of vcctl and the v* programs: what scripts that exist rely on."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from extras.vcctl.tests.conftest import Program
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit import builders
from stromboli.vcctl import tables, view

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_run_makes_the_job_that_vcctl_makes(api_server: Any, program: Program) -> None:
    assert program("vcctl", "job", "run", "-N", "a", "-r", "3", "-i", "tool") == (
        0,
        "run job a successfully\n",
    )
    spec = api_server.job("a").spec
    assert (spec.min_available, spec.scheduler_name, spec.queue) == (1, "volcano", "default")
    (task,) = spec.tasks
    assert (task.name, task.replicas) == ("default0", 3)
    assert task.template.metadata.labels == {"job.volcano.sh": "a"}
    pod = yaml.safe_load(bytes(task.template.spec))
    amounts = {"cpu": "1000m", "memory": "100Mi"}
    assert pod["restartPolicy"] == "Never"
    assert pod["containers"] == [
        {
            "name": "a",
            "image": "tool",
            "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": amounts, "limits": amounts},
        }
    ]


def test_run_takes_a_file_alone(api_server: Any, program: Program, tmp_path: Path) -> None:
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "filed"},
        "spec": {
            "tasks": [
                {
                    "replicas": 2,
                    "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
                }
            ]
        },
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(document))
    ran = program("vcctl", "job", "run", "-f", str(file), "-r", "9")
    assert ran == (0, "run job filed successfully\n")
    assert api_server.job("filed").spec.tasks[0].replicas == 2
    other = tmp_path / "job.json"
    other.write_text("{}")
    code, said = program("vcctl", "job", "run", "-f", str(other))
    assert (code, said) == (255, f"Failed to job run: {other}: only yaml files are supported\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("vcctl", "job", "run"), "Failed to job run: job: neither a name nor a file is set"),
        (("vcctl", "job", "view"), "Failed to job view: name: it is mandatory, and it is empty"),
        (
            ("vcctl", "job", "delete", "-N", "absent"),
            'Failed to job delete: jobs.batch.volcano.sh "absent" not found',
        ),
        (
            ("vcctl", "queue", "get", "-n", "absent"),
            'Failed to queue get: queues.scheduling.volcano.sh "absent" not found',
        ),
        (("vcctl", "job", "list", "--nope"), "Failed to job list: No such option: --nope"),
        (
            ("vcctl", "queue", "operate", "-n", "default"),
            "Failed to queue operate: queue action '': unknown",
        ),
        (
            ("vcctl", "queue", "operate", "-n", "default", "-a", "update"),
            "Failed to queue operate: weight: 0 is not a weight",
        ),
        (("vcancel",), "Failed to : name: it is mandatory, and it is empty"),
        (("vsuspend", "-n", "absent"), 'Failed to : jobs.batch.volcano.sh "absent" not found'),
        (
            ("vsub", "-n", "a", "-R", "cpu"),
            "Failed to : Invalid value for --requests: 'cpu' is not",
        ),
        (("vsub", "-n", "a", "-c", "'"), "Failed to : command: No closing quotation"),
    ],
)
def test_a_failure_is_one_line_on_stdout_and_255(
    program: Program, arguments: tuple[str, ...], line: str
) -> None:
    code, said = program(*arguments)
    assert code == 255
    assert said.startswith(line)
    assert said.count("\n") == 1


def test_the_job_table_has_volcanos_columns(api_server: Any, program: Program) -> None:
    program("vcctl", "job", "run", "-N", "longname")
    api_server.set_status("longname", "Running", minAvailable=1, running=1)
    created = f"{api_server.job('longname').metadata.creation_timestamp:%Y-%m-%d}"
    code, said = program("vcctl", "job", "list")
    assert code == 0
    assert said.splitlines() == [
        "Name       Creation       Phase       JobType     Replicas    Min   Pending   Running   "
        "Succeeded   Failed    Unknown     RetryCount",
        f"longname   {created}     Running     Batch       1           1     0         1         "
        "0           0         0           0         ",
    ]
    _, said = program("vcctl", "job", "list", "--all-namespaces")
    assert said.splitlines()[0].startswith("Namespace   Name       Creation")


def test_lists_filter_by_queue_scheduler_and_a_part_of_the_name(program: Program) -> None:
    for name in ("alpha", "beta"):
        program("vsub", "-n", name)

    def names(*filters: str) -> list[str]:
        lines = program("vcctl", "job", "list", *filters)[1].splitlines()
        return [line.split()[0] for line in lines[1:]]

    assert names() == ["alpha", "beta"]
    assert names("--selector", "lph") == ["alpha"]
    assert names("-S", "volcano") == ["alpha", "beta"]
    assert program("vcctl", "job", "list", "-q", "other") == (0, "No resources found\n")
    assert program("vcctl", "job", "list", "-S", "other") == (0, "No resources found\n")
    header_only = program("vjobs", "--selector", "none")
    assert (header_only[0], len(header_only[1].splitlines())) == (0, 1)
    assert program("vjobs", "-N", "kube-system") == (0, "No resources found\n")


def test_the_short_flags_of_name_and_namespace_swap_in_the_v_programs(
    api_server: Any, program: Program
) -> None:
    api_server.create_namespace("other")
    assert program("vcctl", "job", "run", "-N", "a", "-n", "other")[0] == 0
    assert program("vsub", "-n", "b", "-N", "other")[0] == 0
    _, said = program("vjobs", "-N", "other")
    assert [line.split()[0] for line in said.splitlines()[1:]] == ["a", "b"]
    assert program("vcancel", "-n", "a", "-N", "other") == (0, "cancel job a successfully\n")
    assert program("vcctl", "job", "delete", "-N", "b", "-n", "other") == (
        0,
        "delete job b successfully\n",
    )


def test_vsub_takes_its_defaults_from_the_environment(
    api_server: Any, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    api_server.create_namespace("mine")
    monkeypatch.setenv("VOLCANO_DEFAULT_JOB_NAMESPACE", "mine")
    monkeypatch.setenv("VOLCANO_DEFAULT_IMAGE", "ours:1")
    assert program("vsub", "-n", "a", "-c", "sh -c 'echo hello'")[0] == 0
    task = api_server.job("a", "mine").spec.tasks[0]
    (container,) = yaml.safe_load(bytes(task.template.spec))["containers"]
    assert (container["image"], container["command"]) == ("ours:1", ["sh", "-c", "echo hello"])


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        (("vcctl", "job", "suspend", "-N", "a"), "AbortJob"),
        (("vcctl", "job", "resume", "-N", "a"), "ResumeJob"),
        (("vsuspend", "-n", "a"), "AbortJob"),
        (("vresume", "-n", "a"), "ResumeJob"),
    ],
)
def test_suspend_and_resume_create_a_command_silently(
    api_server: Any, program: Program, arguments: tuple[str, ...], action: str
) -> None:
    program("vsub", "-n", "a")
    assert program(*arguments) == (0, "")
    (command,) = (kinds.COMMANDS.decode(raw) for raw in api_server.all(kinds.COMMANDS))
    assert command.action == action
    assert command.metadata.name.startswith(f"a-{action.lower()}-")


def test_queues_are_created_changed_and_shown_silently(api_server: Any, program: Program) -> None:
    assert program("vcctl", "queue", "create") == (0, "")
    assert program("vcctl", "queue", "create", "-n", "q", "-w", "3", "-S", "Closed") == (0, "")
    assert program("vcctl", "queue", "operate", "-n", "q", "-a", "update", "-w", "7") == (0, "")
    assert program("vcctl", "queue", "operate", "-n", "q", "-a", "close") == (0, "")
    (command,) = (kinds.COMMANDS.decode(raw) for raw in api_server.all(kinds.COMMANDS))
    assert (command.action, command.metadata.namespace) == ("CloseQueue", "default")
    api_server.create(kinds.POD_GROUPS, builders.make_pod_group("g", queue="q", phase="Running"))
    header, row = program("vcctl", "queue", "get", "-n", "q")[1].splitlines()
    assert header == (
        "Name                     Weight  State   Parent  Inqueue Pending Running Unknown Completed"
    )
    assert row.split() == ["q", "7", *row.split()[2:]]
    assert row.split()[-5:] == ["0", "0", "1", "0", "0"]
    listed = program("vcctl", "queue", "list")[1].splitlines()
    assert [line.split()[0] for line in listed] == ["Name", "default", "q", "root", "test"]
    assert program("vqueues", "-n", "q")[1].splitlines()[0] == (
        "Name                     Weight  State   Inqueue Pending Running Unknown "
    )
    assert program("vcctl", "queue", "delete", "-n", "q") == (0, "")


def test_pods_are_chosen_by_job_and_queue(api_server: Any, program: Program) -> None:
    assert program("vcctl", "pod", "list") == (0, "No resources found\n")
    labels = {keys.JOB_NAME: "a", keys.QUEUE_NAME: "q"}
    api_server.create(kinds.PODS, builders.make_pod("a-w-0", labels=labels))
    header, row = program("vcctl", "pod", "list", "-j", "a", "-q", "q")[1].splitlines()
    assert header.split() == ["Name", "Ready", "Status", "Restart", "Age"]
    assert row.split()[:4] == ["a-w-0", "0/1", "Pending", "0"]
    assert header.index("Ready") == len("a-w-0") + 8
    code, said = program("vcctl", "pod", "list", "-j", "a", "-q", "other")
    assert (code, said) == (255, "Failed to pod list: pod a-w-0: it is not in queue other\n")
    assert program("vcctl", "pod", "list", "-q", "other") == (0, "No resources found\n")


def test_version_is_a_key_and_a_value_in_each_line(program: Program) -> None:
    _, said = program("vcctl", "version")
    assert [line.partition(": ")[0] for line in said.splitlines()] == [
        "API Version", "Version", "Git SHA", "Built At", "Go Version", "Go OS/Arch",
    ]  # fmt: skip


def test_flags_of_the_logging_library_and_the_address_are_taken(
    api_server: Any, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STROM_SERVER")
    assert program("vqueues", "-v", "4", "--log-flush-frequency=1s", "-s", api_server.url)[0] == 0
    assert program("vcctl", "job", "list", "--v=3", "-k", "config", "-s", api_server.url)[0] == 0


JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {
        "name": "a",
        "namespace": "default",
        "uid": "u",
        "generation": 1,
        "resourceVersion": "5",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"b": "2", "a": "1"},
    },
    "spec": {
        "minAvailable": 1,
        "schedulerName": "volcano",
        "plugins": {"env": [], "ssh": ["--no-root", "--x=1"]},
        "tasks": [
            {
                "name": "w",
                "replicas": 2,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [
                            {
                                "name": "c",
                                "image": "i",
                                "command": ["sleep", "5"],
                                "ports": [{"containerPort": 80, "name": "http"}],
                                "resources": {"requests": {"cpu": "1000m", "memory": "2048Mi"}},
                            }
                        ],
                    }
                },
            }
        ],
    },
    "status": {
        "running": 2,
        "minAvailable": 1,
        "state": {"phase": "Running"},
        "controlledResources": {"plugin-env": "env"},
        "conditions": [{"status": "Running", "lastTransitionTime": "2026-01-02T03:04:06Z"}],
    },
}


def test_the_view_has_its_sections_with_tabs_behind_the_labels() -> None:
    lines = view.job(JOB, with_conditions=True)
    assert lines == [
        "Name:       \ta",
        "Namespace:  \tdefault",
        'Labels:     \t{"a":"1","b":"2"}',
        "Annotations:\t<none>",
        "API Version:\tbatch.volcano.sh/v1alpha1",
        "Kind:       \tJob",
        "Metadata:",
        "  Creation Timestamp:\t2026-01-02 03:04:05 +0000 UTC",
        "  Generate Name:     \t",
        "  Generation:        \t1",
        "  Resource Version:  \t5",
        "  UID:               \tu",
        "Spec:",
        "  Min Available:     \t1",
        "  Plugins:",
        "    Env:\t[]",
        "    Ssh:\t[--no-root --x=1]",
        "  Scheduler Name:    \tvolcano",
        "  Tasks:",
        "    Name:\tw",
        "    Replicas:\t2",
        "    Template:",
        "      Metadata:",
        "        Annotations:",
        "          Cri . Cci . Io / Container - Type:          \t",
        "          Kubernetes . Io / Availablezone:            \t",
        "          Network . Alpha . Kubernetes . Io / Network:\t",
        "        Creation Timestamp:\t0001-01-01 00:00:00 +0000 UTC",
        "      Spec:",
        "        Containers:",
        "          Command:",
        "            sleep",
        "            5",
        "          Image:\ti",
        "          Name: \tc",
        "          Ports:",
        "            Container Port:\t80",
        "            Name:          \thttp",
        "          Resources:",
        "            Limits:",
        "              Cpu:   \t0",
        "              Memory:\t0",
        "            Requests:",
        "              Cpu:   \t1",
        "              Memory:\t2Gi",
        "            Working Dir:\t",
        "        Image Pull Secrets:",
        "        Restart Policy:   \tNever",
        "Status:",
        "  Running:      \t2",
        "  Min Available:\t1",
        "  State:",
        "    Phase:\tRunning",
        "  Controlled Resources:",
        "    plugin-env: \tenv",
        "  Conditions:",
        "    Status:        \tRunning",
        "    TransitionTime:\t2026-01-02 03:04:06 +0000 UTC",
    ]
    assert "  Conditions:" not in view.job(JOB, with_conditions=False)


def test_events_have_their_own_table_with_counts() -> None:
    assert view.events([], NOW) == ["Events: \t<none>"]
    event = view.Event(
        type="Warning",
        reason="PodGroupPending",
        message=" waits \n",
        count=3,
        first_timestamp=NOW - timedelta(minutes=5),
        last_timestamp=NOW - timedelta(seconds=10),
        source=view.Source(component="controller"),
    )
    title, header, dashes, row = view.events([event], NOW)
    assert title == "Events:"
    assert [cell.strip() for cell in header.split("\t")] == [
        "Type", "Reason", "Age", "Form", "Message",
    ]  # fmt: skip
    assert {cell.strip() for cell in dashes.split("\t")} == {"-------"}
    assert [cell.rstrip() for cell in row.split("\t")] == [
        "Warning", "PodGroupPending", "10s (x3 over 5m)", "controller", "waits",
    ]  # fmt: skip
    assert [len(cell) for cell in row.split("\t")[:-1]] == [15, 40, 30, 40]


def test_view_shows_the_job_and_the_events_of_its_name(api_server: Any, program: Program) -> None:
    program("vsub", "-n", "a")
    uid = api_server.job("a").metadata.uid
    involved = {"kind": "Job", "name": "a", "namespace": "default", "uid": uid}
    news = {"type": "Normal", "reason": "Told", "message": "it is", "involvedObject": involved}
    for name in ("a.1", "b.1"):
        api_server.create(
            kinds.EVENTS, {"metadata": {"name": name, "namespace": "default"}, **news}
        )
    for call in (("vcctl", "job", "view", "-N", "a"), ("vjobs", "-n", "a")):
        code, said = program(*call)
        assert code == 0
        assert said.startswith("Name:       \ta\n")
        assert said.count("Told") == 1


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        (None, "0"),
        ("0", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("2000", "2k"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("100Mi", "100Mi"),
        (4, "4"),
    ],
)
def test_amounts_are_printed_as_kubernetes_does(written: Any, printed: str) -> None:
    assert view.canonical(written) == printed


def test_ages_say_what_is_unknown_or_in_the_future() -> None:
    assert tables.age(None, NOW) == "<unknown>"
    assert tables.age(NOW + timedelta(seconds=5), NOW) == "<invalid>"
    assert tables.age(NOW + timedelta(milliseconds=500), NOW) == "0s"
    assert tables.age(NOW - timedelta(days=3, hours=2), NOW) == "3d2h"
    assert tables.age(NOW - timedelta(days=800), NOW) == "2y70d"
    assert tables.age(NOW - timedelta(days=5000), NOW) == "13y"


def test_help_is_a_command_too(program: Program) -> None:
    """Of the program, of a group and of a command."""
    for words, usage in (
        ((), "Usage: vcctl [OPTIONS] COMMAND"),
        (("job",), "Usage: vcctl job [OPTIONS] COMMAND"),
        (("job", "run"), "Usage: vcctl job run [OPTIONS]"),
    ):
        code, said = program("vcctl", "help", *words)
        assert (code, said.partition("\n")[0].startswith(usage)) == (0, True)
    assert program("vcctl", "help", "nope") == (
        255,
        "Failed to help: help: unknown command 'nope'\n",
    )
