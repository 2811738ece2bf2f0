"""Rules of ``strom`` as a whole: help, errors, addresses, commands of others."""

import itertools
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stromboli.cli import installed_commands, main, other_words
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import kinds
from stromboli.shared.messages.scheduling import QueueOrdered, queue_order_key
from stromboli.testkit import builders


def call(*arguments: str, env: Mapping[str, str | None] | None = None) -> Any:
    return CliRunner().invoke(main.app, arguments, env=env, prog_name="strom")


def test_help_names_every_command() -> None:
    shown = call("--help")
    assert shown.exit_code == 0
    for name in ("job", "queue", "apply", "explain", "version"):
        assert f"  {name} " in shown.stdout
    assert "\x1b" not in shown.stdout


@pytest.mark.parametrize("arguments", [(), ("job",), ("queue",)])
def test_a_group_without_a_command_shows_its_help(arguments: tuple[str, ...]) -> None:
    shown = call(*arguments)
    assert (shown.exit_code, shown.stdout) == (0, call(*arguments, "--help").stdout)


def test_options_before_the_command_are_an_error_with_their_place() -> None:
    refused = call("--server", "http://a", "job", "list")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "strom: No such option: --server\nnext: put options after the command; see strom --help\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("jb list", "strom: No such command 'jb'; did you mean job or jobs?"),
        ("job lst", "strom: job: No such command 'lst'; did you mean list or set?"),
        ("job cancle a", "strom: job: No such command 'cancle'; did you mean cancel or scale?"),
        ("job list --stat R", "strom: job list: No such option: --stat; did you mean --state,"),
        ("get jbo", "'jbo' is not one of job, queue,"),
        ("get jbo", "; did you mean job?"),
        ("zzz", "strom: No such command 'zzz'\n"),
        ("squeue", "strom: No such command 'squeue'; use strom job list\n"),
        ("job show a", "strom: job: No such command 'show'; use strom job get or describe\n"),
    ],
)
def test_a_misspelt_word_is_answered_with_similar_ones(words: str, said: str) -> None:
    refused = call(*words.split())
    assert refused.exit_code == 2
    assert said in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--time 5h",
            "next: write FIELD=VALUE without dashes: time-limit=VALUE; fields are",
        ),
        ("--priority high", "next: write FIELD=VALUE without dashes: priority=VALUE; fields are"),
        ("--nope", "next: write FIELD=VALUE without dashes: time-limit=VALUE; fields are"),
        ("time=5h", "'time' is not a field that can be set; did you mean time-limit? fields are"),
    ],
)
def test_an_option_where_fields_are_set_is_answered_with_the_field(words: str, said: str) -> None:
    refused = call("job", "set", "train", *words.split())
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_a_wildcard_in_a_name_is_answered_with_the_ways_to_select_jobs() -> None:
    refused = call("job", "delete", "swee*")
    assert refused.exit_code == 2
    assert "'swee*' has a wildcard, and names cannot have one" in refused.stderr
    assert "--selector KEY=VALUE" in refused.stderr


def test_a_misspelt_name_is_answered_with_similar_ones(strom: Any) -> None:
    for name in ("train", "sweep"):
        assert strom("job", "run", name).exit_code == 0
    for words in (
        ("job", "get", "trian"), ("job", "delete", "trian"), ("job", "wait", "trian"),
        ("get", "job", "trian"),
    ):  # fmt: skip
        absent = strom(*words)
        assert absent.exit_code == 1
        assert absent.stderr.startswith(
            "strom: job default/trian: not found; did you mean train?\nnext: list what exists: "
        )
    unlike = strom("job", "get", "zzz")
    assert unlike.stderr.startswith("strom: job default/zzz: not found\n")


def test_completion_has_built_in_and_installed_commands() -> None:
    def completed(words: str) -> list[str]:
        requested = {"_STROM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "2"}
        return str(call(env=requested).stdout).split()

    assert completed("strom job li") == ["list"]
    assert completed("strom queue ") == [
        "create", "list", "get", "update", "open", "close", "delete",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [("jobz",), ("job", "list", "--nope"), ("job", "run", "--replicas", "x"), ("explain",)],
)
def test_a_usage_error_is_one_line_a_next_step_and_2(arguments: tuple[str, ...]) -> None:
    refused = call(*arguments)
    assert refused.exit_code == 2
    first, second = refused.stderr.splitlines()
    assert first.startswith("strom: ")
    assert second.startswith("next: see strom ")
    assert second.endswith(" --help")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("job", "run", "a", "--replicas", "x"), "'x' is not a whole number"),
        (("job", "run", "a", "--gpus", "-1"), "-1 is less than 0"),
        (("job", "run", "a", "--run-seconds", "x"), "'x' is not a number"),
        (("job", "run", "a", "--time", "4x"), "'4x' is not a duration"),
        (("job", "list", "--output", "x"), "'x' is not one of 'table'"),
        (("up", "--port", "99999"), "99999 is more than 65535"),
        (("up", "--nodes", "-1"), "-1 is less than 0"),
        (("up", "--config", "absent.yaml"), "'absent.yaml' does not exist"),
    ],
)
def test_an_invalid_value_is_quoted_as_written(arguments: tuple[str, ...], said: str) -> None:
    refused = call(*arguments)
    assert refused.exit_code == 2
    assert f"Invalid value for '{arguments[-2]}'" in refused.stderr
    assert said in refused.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "news", "path"),
    [
        (
            ("job", "run", "a", "--image"),
            ("strom: job run: Option '--image' requires an argument",
             "  --image, -i: The container's image."),
            "strom job run",
        ),
        (
            ("--token-file", "x", "top", "--every"),
            ("strom: top: Option '--every' requires an argument",
             "  --every: Refresh interval."),
            "strom top",
        ),
        (
            ("simulate", "replay", "--state"),
            ("strom: simulate replay: Option '--state' requires an argument",),
            "strom simulate replay",
        ),
    ],
)  # fmt: skip
def test_an_option_without_its_value_is_explained_by_its_own_command(
    arguments: tuple[str, ...], news: tuple[str, ...], path: str
) -> None:
    refused = call(*arguments)
    assert refused.exit_code == 2
    lines = refused.stderr.splitlines()
    assert tuple(lines[: len(news)]) == news
    assert lines[-1] == f"next: see {path} --help"


def test_a_port_in_use_is_reported_with_the_next_step(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        # As a process: a command that runs a system also configures the logging of its process.
        up = (Path(sys.executable).with_name("strom"), "up", "--port", port, "--state", tmp_path)
        refused = subprocess.run(up, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"strom: up: port {port}: it is in use\n"
        "next: stop the process that listens there, set another port, or omit --port\n"
    )


def test_an_invalid_server_url_is_a_usage_error_with_the_expected_form() -> None:
    refused = call("job", "list", "--server", "foo")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "strom: server 'foo': not a URL (from --server)\n"
        "next: write it with its scheme, such as http://127.0.0.1:8480\n"
    )


def test_an_unreachable_server_is_3_with_the_origin_of_its_address() -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        by_flag = call("job", "list", "--server", url)
        by_variable = call("queue", "list", env={"STROM_SERVER": url})
    assert (by_flag.exit_code, by_variable.exit_code) == (3, 3)
    assert by_flag.stderr.startswith(f"strom: server {url} (from --server): Connection refused\n")
    assert by_variable.stderr.startswith(f"strom: server {url} (from STROM_SERVER): ")
    assert by_flag.stderr.endswith("\nnext: start one with: strom up\n")


def test_the_next_step_depends_on_the_cause_of_a_connection_error(api_server: Any) -> None:
    """An unknown host name, and a server without TLS."""
    for url, next_step in (
        ("http://nowhere.invalid", "check the address"),
        (api_server.url.replace("http:", "https:"), "write http:// instead of https://"),
    ):
        refused = call("job", "list", "--server", url)
        assert refused.exit_code == 3
        assert f"next: {next_step}" in refused.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that Linux has")
def test_a_failed_write_of_output_is_no_internal_error() -> None:
    strom = Path(sys.executable).with_name("strom")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [strom, "--help"], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 1
    assert ended.stderr == (
        "strom: output: No space left on device\nnext: write to another file or device\n"
    )


def test_no_colour_if_disabled() -> None:
    """As defined by https://no-color.org; on terminals lines contain escape sequences otherwise."""
    for wanted, variable in ((False, "1"), (True, "")):
        result = CliRunner().invoke(
            main.app,
            ["job", "list", "--server", "foo"],
            env={"NO_COLOR": variable},
            color=True,
        )
        assert ("\x1b[" in result.stderr) is wanted


def test_a_server_of_another_program_is_reported(api_server: Any, strom: Any) -> None:
    other = strom("job", "list", "--server", f"{api_server.url}/schema")
    assert other.exit_code == 1
    assert "the response is not from a Stromboli server" in other.stderr


def test_the_address_stored_by_strom_up_is_used(api_server: Any, strom: Any) -> None:
    Path(".strom").mkdir()
    Path(".strom/server").write_text(api_server.url + "\n")
    shown = strom("version", env={"STROM_SERVER": None})
    assert f"server {api_server.url} (stored by strom up in " in shown.stdout


def test_version_shows_the_readiness_of_the_server(api_server: Any, strom: Any) -> None:
    first, second = strom("version").stdout.splitlines()
    assert first.startswith("strom 0.")
    assert second == f"server {api_server.url} (from STROM_SERVER): ready"
    api_server.health.set("log", "the broker is away")
    *_, second, third = strom("version").stdout.splitlines()
    assert second.endswith(": not ready")
    assert third == "  admission: log: the broker is away"
    away = strom("version", "--server", "http://127.0.0.1:1")
    assert away.exit_code == 0
    assert "(from --server): not reachable: " in away.stdout


def test_explain_shows_why_a_job_is_pending_and_the_jobs_ahead(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a", "--replicas", "4")
    group = f"default/a-{api_server.job('a').metadata.uid}"
    explained = builders.make_explanation(group, members=4)
    ordered = QueueOrdered(queue="default", pod_groups=("default/first", group))
    for key, message in ((group, explained), (queue_order_key("default"), ordered)):
        draft = envelope.Draft(
            topic=topics.EXPLANATIONS, key=key, message=message, time=builders.NOON
        )
        headers, value = envelope.seal(draft, "scheduler", 0, 1, cluster_name="default")
        api_server.tell(envelope.Record(topics.EXPLANATIONS, 1, key, value, headers))
    shown = strom("explain", "a")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "default/a is pending: insufficient resources to admit it to its queue.",
        "  queue      default, position 2; in front: default/first",
        "  gang       4 pods must start together: 0 running, 0 more can be placed now",
    ]
    assert shown.stdout in strom("job", "view", "a").stdout
    assert '"tier": "enqueue"' in strom("explain", "a", "-o", "json").stdout
    assert "tier: enqueue" in strom("explain", "a", "-o", "yaml").stdout


def test_explain_of_a_job_that_was_just_submitted_does_not_say_that_its_pods_are_bound(
    strom: Any,
) -> None:
    strom("job", "run", "a")
    assert strom("explain", "a").stdout == (
        "default/a is pending: the scheduler has not explained it yet; "
        "ask again in a few seconds.\n"
    )
    assert strom("explain", "absent").exit_code == 1


def test_explain_and_get_show_the_controllers_annotation_without_events(
    api_server: Any, strom: Any
) -> None:
    """An API server forgets its Events within hours, and a job may wait for weeks."""
    strom("job", "run", "a")
    api_server.annotate("a", **{keys.HELD: "FailedCreate: exceeded quota: q"})
    shown = strom("explain", "a").stdout
    assert shown.endswith("  controller FailedCreate: exceeded quota: q\n")
    assert shown in strom("job", "view", "a").stdout
    assert shown in strom("job", "describe", "a").stdout
    api_server.set_status("a", "Completed")
    assert strom("explain", "a").stdout == "default/a is not pending: it is Completed.\n"


def test_explain_shows_image_errors_of_nodes(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    api_server.start_pod("a", 0, b"", phase="Pending")
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "there is no image nope"}}
    container = {"name": "main", "image": "nope", "imageID": "", "ready": False}
    status = {"containerStatuses": [{**container, "restartCount": 0, "state": waiting}]}
    api_server.set_pod_status("a-w-0", **status)
    shown = strom("explain", "a").stdout
    assert shown.endswith("  node       1 pod: ErrImagePull: there is no image nope\n")
    assert shown in strom("job", "view", "a").stdout
    assert shown in strom("job", "describe", "a").stdout


def test_explain_reports_a_scheduler_name_that_is_not_served(api_server: Any, strom: Any) -> None:
    container = {"name": "c", "image": "i"}
    task = {"name": "w", "replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"schedulerName": "other", "minAvailable": 1, "queue": "default", "tasks": [task]}
    api_server.create(kinds.JOBS, {"metadata": {"name": "a", "namespace": "default"}, "spec": spec})
    assert strom("explain", "a").stdout.splitlines() == [
        "default/a is pending: no scheduler of Stromboli handles its pods.",
        "  scheduler  NoScheduler: the job names the scheduler 'other', and only volcano and "
        "stromboli are served here: to run it here, delete it and submit it again without a "
        "scheduler",
    ]


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that adds commands, some of them broken, as installed on the path."""
    (tmp_path / "strom_others.py").write_text(
        "import typer\n"
        "from stromboli.cli.errors import CommandError\n"
        "group = typer.Typer(help='A group of its own.')\n"
        "@group.command('sub')\n"
        "def sub() -> None: typer.echo('sub ran')\n"
        "@group.command('other')\n"
        "def other() -> None: pass\n"
        "def function(count: int = 1) -> None:\n"
        "    'Says how many.'\n"
        "    typer.echo(f'{count} of them')\n"
        "def failing() -> None: raise CommandError('failing', 'it must', 'nothing')\n"
        "value = 1\n"
    )
    (tmp_path / "strom_broken.py").write_text("import there_is_no_such_module\n")
    info = tmp_path / "strom_others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strom-others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{installed_commands.ENTRY_POINTS}]\n"
        "group = strom_others:group\n"
        "function = strom_others:function\n"
        "failing = strom_others:failing\n"
        "value = strom_others:value\n"
        "broken = strom_broken:command\n"
        "version = strom_broken:command\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("distribution")
def test_other_distributions_add_commands_and_groups() -> None:
    assert call("group", "sub").stdout == "sub ran\n"
    assert call("function", "--count", "3").stdout == "3 of them\n"
    failed = call("failing")
    assert (failed.exit_code, failed.stderr) == (1, "strom: failing: it must\nnext: nothing\n")
    shown = call("--help").stdout
    assert "From strom-others." in shown
    assert "Says how many." in shown
    assert "A group of its own." in shown


@pytest.mark.usefixtures("distribution")
def test_a_command_imports_no_expensive_module_without_need() -> None:
    """Each of these costs tens of milliseconds, also during shell completion."""
    dear = "{'httpx', 'rich', 'yaml', 'importlib.metadata', 'asyncio', 'stromboli.embedded'}"
    program = f"import stromboli.cli.main, sys; print(sorted({dear} & set(sys.modules)))"
    run = subprocess.run((sys.executable, "-c", program), capture_output=True, check=True)
    assert run.stdout == b"[]\n"


def test_help_imports_no_installed_command() -> None:
    sys.modules.pop("strom_others", None)
    call("--help")
    assert "strom_others" not in sys.modules


@pytest.mark.usefixtures("distribution")
def test_a_failing_import_of_a_command_affects_only_that_command() -> None:
    broken = call("broken", "--whatever", "x")
    assert broken.exit_code == 1
    assert broken.stderr == (
        "strom: broken: cannot be loaded: ModuleNotFoundError: No module named "
        "'there_is_no_such_module'\nnext: reinstall strom-others\n"
    )
    assert "strom_others:value is not a command" in call("value").stderr
    shown = call("--help")
    assert shown.exit_code == 0
    assert "  broken " in shown.stdout


@pytest.mark.usefixtures("distribution")
def test_our_own_commands_cannot_be_replaced() -> None:
    assert call("version", "--server", "http://127.0.0.1:1").stdout.startswith("strom 0.")


@pytest.mark.parametrize(
    "group",
    [
        "",
        "job",
        "queue",
        "pod",
        "podgroup",
        "node",
        "flow",
        "claimtemplate",
        "cluster",
        "simulate",
        "context",
    ],
)
def test_no_summary_of_a_help_text_is_cut(group: str) -> None:
    """A terminal of 80 columns must show all of it."""
    shown = call(*filter(None, (group, "--help")))
    assert shown.exit_code == 0
    assert [
        line for line in shown.stdout.splitlines() if line.endswith("...") and "Usage:" not in line
    ] == []


def test_every_command_that_is_suggested_for_a_word_of_slurm_exists(strom: Any) -> None:
    for words in (other_words.OF_STROM, other_words.OF_JOBS):
        for suggested in words.values():
            path = list(itertools.takewhile(str.islower, suggested.split()[1:3]))
            path = [part.rstrip(",") for part in path if part != "-f"]
            assert strom(*path, "--help").exit_code == 0, suggested


def test_the_help_of_jobs_has_the_other_names_of_its_commands(strom: Any) -> None:
    assert "cancel (delete)" in " ".join(strom("job", "--help").stdout.split())
