"""``miniwdl run`` with the container backend ``strom`` on process nodes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stromboli.client import Client
from stromboli.miniwdl.manifest import DIRECTORY

EXAMPLE = Path(__file__).parents[3] / "examples/squares.wdl"
DEADLINE_S = 110


def environment(folder: Path, more: Mapping[str, str]) -> Mapping[str, str]:
    return {
        **os.environ,
        "MINIWDL__SCHEDULER__CONTAINER_BACKEND": "strom",
        "MINIWDL__SCHEDULER__TASK_CONCURRENCY": "8",
        "MINIWDL__STROM__POLL_S": "0.3",
        "MINIWDL__CALL_CACHE__DIR": str(folder / "cache"),
        **more,
    }


def command(source: Path, folder: Path, *words: str) -> Sequence[str]:
    runs = str(folder / "runs")
    return [
        *(sys.executable, "-m", "WDL", "run", str(source), *words),
        *("--dir", runs, "--no-color", "--verbose"),
    ]


def run(source: Path, folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(source, folder, *words),
        env=environment(folder, more),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


def outputs(ran: subprocess.CompletedProcess[str]) -> Mapping[str, Any]:
    assert ran.returncode == 0, ran.stderr
    found: Mapping[str, Any] = json.loads(ran.stdout)["outputs"]
    return found


def jobs_of(client: Client, folder: Path) -> list[str]:
    return [
        job.metadata.name
        for job in client.jobs("default")
        if (job.metadata.annotations or {}).get(DIRECTORY, "").startswith(str(folder))
    ]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(240)
def test_the_example_finishes_and_leaves_no_job(client: Client, tmp_path: Path) -> None:
    ran = run(EXAMPLE, tmp_path, "numbers=1", "numbers=2", "numbers=3")
    assert Path(outputs(ran)["squares.total_file"]).read_text() == "14\n"
    assert ran.stderr.count("job :: name:") == 4
    assert jobs_of(client, tmp_path) == []


FILES = """
version 1.2
task files {
  input {
    File text
    Directory folder
    File same_name
  }
  command <<<
    set -e
    cat ~{text} ~{same_name} ~{folder}/inner.txt > joined.txt
    cp ~{write_lines(["a", "b"])} lines.txt
    mkdir made && echo x > made/x.txt
    echo "on stdout"; echo "$GREETING"
  >>>
  output {
    String joined = read_string("joined.txt")
    Array[String] lines = read_lines("lines.txt")
    Array[String] stdout_lines = read_lines(stdout())
    Directory made = "made"
    File input_again = text
    File inner = "~{folder}/inner.txt"
  }
}
"""


@pytest.mark.timeout(240)
def test_files_and_directories_go_in_and_out(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a/folder").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "a/text.txt").write_text("one ")
    (tmp_path / "b/text.txt").write_text("two ")
    (tmp_path / "a/folder/inner.txt").write_text("three")
    source = tmp_path / "files.wdl"
    source.write_text(FILES)
    ran = run(
        source,
        tmp_path,
        f"text={tmp_path}/a/text.txt",
        f"same_name={tmp_path}/b/text.txt",
        f"folder={tmp_path}/a/folder",
        "--env",
        "GREETING=it's me",
    )
    found = outputs(ran)
    assert found["files.joined"] == "one two three"
    assert found["files.lines"] == ["a", "b"]
    assert found["files.stdout_lines"] == ["on stdout", "it's me"]
    assert (Path(found["files.made"]) / "x.txt").read_text() == "x\n"
    assert Path(found["files.input_again"]).read_text() == "one "
    assert Path(found["files.inner"]).read_text() == "three"


BROKEN = """
version 1.1
task broken {
  command <<<
    echo "the reason" >&2
    exit 3
  >>>
  output {}
}
"""


@pytest.mark.timeout(240)
def test_a_failed_task_fails_the_run_with_its_exit_code_and_stderr(
    client: Client, tmp_path: Path
) -> None:
    source = tmp_path / "broken.wdl"
    source.write_text(BROKEN)
    ran = run(source, tmp_path)
    assert ran.returncode != 0
    assert "task command failed with exit status 3" in ran.stderr
    assert "the reason" in ran.stderr
    (error,) = (tmp_path / "runs").glob("*_broken/error.json")
    assert json.loads(error.read_text())["cause"]["exit_status"] == 3
    assert jobs_of(client, tmp_path) == []


FLAKY = """
version 1.1
task flaky {
  input {
    String marks
    File text
  }
  command <<<
    set -e
    ls > listed.txt
    echo try >> ~{marks}
    test "$(grep -c try ~{marks})" -ge 2
    cat ~{text}
  >>>
  output {
    String text_again = read_string(stdout())
    Array[String] listed = read_lines("listed.txt")
  }
  runtime {
    maxRetries: 1
  }
}
"""


@pytest.mark.timeout(240)
def test_a_retried_task_has_its_inputs_and_no_files_of_the_failed_attempt(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("hello")
    source = tmp_path / "flaky.wdl"
    source.write_text(FLAKY)
    ran = run(source, tmp_path, f"marks={tmp_path}/marks", f"text={tmp_path}/text.txt")
    assert outputs(ran) == {
        "flaky.text_again": "hello",
        "flaky.listed": ["_miniwdl_inputs", "listed.txt"],
    }
    assert (tmp_path / "marks").read_text() == "try\ntry\n"
    assert "failed task will be retried" in ran.stderr


@pytest.mark.timeout(240)
def test_a_refused_job_fails_the_run_with_the_reason(client: Client, tmp_path: Path) -> None:
    source = tmp_path / "broken.wdl"
    source.write_text(BROKEN)
    ran = run(source, tmp_path, MINIWDL__STROM__QUEUE="absent")
    assert ran.returncode != 0
    assert "was not submitted" in ran.stderr
    assert "absent" in ran.stderr


def test_a_server_that_does_not_answer_is_named(client: Client, tmp_path: Path) -> None:
    source = tmp_path / "broken.wdl"
    source.write_text(BROKEN)
    ran = run(source, tmp_path, STROM_SERVER="http://127.0.0.1:9")
    assert ran.returncode != 0
    assert "http://127.0.0.1:9" in ran.stderr


SLOW = """
version 1.1
workflow slow {
  input {
    String folder
  }
  call first { input: folder = folder }
  call second { input: folder = folder, after_first = first.done }
  output {
    String done = second.done
  }
}
task first {
  input {
    String folder
  }
  command <<<
    echo first >> ~{folder}/starts
  >>>
  output {
    String done = "first"
  }
}
task second {
  input {
    String folder
    String after_first
  }
  command <<<
    echo second >> ~{folder}/starts
    while [ ! -e ~{folder}/go ]; do sleep 0.2; done
  >>>
  output {
    String done = "second"
  }
}
"""
CACHE = {"MINIWDL__CALL_CACHE__PUT": "true", "MINIWDL__CALL_CACHE__GET": "true"}


def start(folder: Path) -> subprocess.Popen[bytes]:
    (folder / "slow.wdl").write_text(SLOW)
    # A runner of tests may ignore SIGINT, and its programs then do, too.
    words = command(folder / "slow.wdl", folder, f"folder={folder}")
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            ["env", "--default-signal=INT", *words],
            env=environment(folder, CACHE),
            cwd=folder,
            stderr=log,
        )


def starts(folder: Path) -> list[str]:
    path = folder / "starts"
    return path.read_text().split() if path.exists() else []


@pytest.mark.timeout(300)
def test_a_killed_miniwdl_that_starts_again_uses_what_was_done_and_deletes_its_old_job(
    client: Client, tmp_path: Path
) -> None:
    started = start(tmp_path)
    until(lambda: starts(tmp_path) == ["first", "second"])
    started.kill()
    started.wait()
    (left,) = jobs_of(client, tmp_path)
    again = start(tmp_path)
    until(lambda: starts(tmp_path) == ["first", "second", "second"])
    assert left not in jobs_of(client, tmp_path)
    (tmp_path / "go").touch()
    assert again.wait() == 0
    assert left in (tmp_path / "log").read_text()
    assert jobs_of(client, tmp_path) == []


@pytest.mark.timeout(240)
def test_a_second_miniwdl_leaves_the_jobs_of_the_first_alone(
    client: Client, tmp_path: Path
) -> None:
    started = start(tmp_path)
    until(lambda: starts(tmp_path) == ["first", "second"])
    before = jobs_of(client, tmp_path)
    source = tmp_path / "broken.wdl"
    source.write_text(BROKEN)
    run(source, tmp_path)
    assert jobs_of(client, tmp_path) == before
    (tmp_path / "go").touch()
    assert started.wait() == 0


@pytest.mark.timeout(240)
def test_an_interrupted_miniwdl_leaves_no_job(client: Client, tmp_path: Path) -> None:
    started = start(tmp_path)
    until(lambda: starts(tmp_path) == ["first", "second"])
    os.kill(started.pid, signal.SIGINT)
    assert started.wait() != 0
    assert jobs_of(client, tmp_path) == []
