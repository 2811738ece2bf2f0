"""What a running system decided is decided again from its log, also after compaction."""

import asyncio
import contextlib
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stromboli.cli import main
from stromboli.client import AsyncClient
from stromboli.embedded import state_folder
from stromboli.shared import topics
from tests.e2e.support import configured_system as cells

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
OTHER = TIERS.replace("nodeorder", "binpack")


async def replayed(folder: Path, *more: str) -> tuple[Result, list[dict[str, Any]]]:
    command = ["simulate", "replay", "--state", str(folder)]
    command += ["--config", str(folder / "was.yaml"), *more]
    result = await asyncio.to_thread(CliRunner().invoke, main.app, command)
    return result, [json.loads(line) for line in result.stdout.splitlines()]


def compact(folder: Path) -> int:
    """As the broker does: of each copied topic only the last record of a key stays. Returns how
    many went."""
    log = state_folder.embedded(folder) / state_folder.LOG
    with contextlib.closing(sqlite3.connect(log)) as database, database:
        gone = 0
        for topic in topics.COPIED:
            gone += database.execute(
                "DELETE FROM records WHERE topic = (SELECT id FROM topics WHERE name = ?1)"
                " AND offset NOT IN (SELECT max(offset) FROM records WHERE topic ="
                " (SELECT id FROM topics WHERE name = ?1) GROUP BY key)",
                (topic.full_name("default"),),
            ).rowcount
    return gone


async def is_kept(folder: Path) -> bool:
    """Whether the history contains the same as the copied topics: it is written later."""
    with contextlib.closing(
        sqlite3.connect(state_folder.embedded(folder) / state_folder.LOG)
    ) as database:
        ends = dict(database.execute("SELECT name, next FROM topics"))
        reported = database.execute(
            "SELECT value FROM records JOIN topics ON topic = id"
            " WHERE key = '$kept' AND name = ? ORDER BY offset DESC LIMIT 1",
            (topics.CHANGES.full_name("default"),),
        ).fetchone()
    kept = json.loads(reported[0])["positions"] if reported else {}
    return all(
        ends.get(topic.full_name("default"), 0) <= kept.get(topic.name, 0)
        for topic in topics.COPIED
    )


async def test_replayed_sessions_decide_byte_for_byte_as_recorded(tmp_path: Path) -> None:
    """Jobs are created and deleted, the log is compacted, and no session is lost; the result with
    another configuration is shown beside it.
    """
    async with cells.running(tmp_path, "enqueue, allocate", TIERS) as cell:
        (tmp_path / "was.yaml").write_text((tmp_path / "scheduler.yaml").read_text())
        await cell.submit("a", 3)
        await cell.nodes_of("a", 3)
        await cell.submit("b", 9)
        await cell.nodes_of("b", 9)
        await cell.submit("wide", 6)
        for name in ("a", "b"):
            await cell.delete(name)
        await cell.nodes_of("wide", 6)
        await cell.runs("wide")
        await cell.until(lambda: is_kept(tmp_path), bool)
    assert compact(tmp_path) > 0
    result, lines = await replayed(tmp_path)
    assert result.exit_code == 0, result.output
    assert len(lines) >= 6  # each job is enqueued, and placed
    assert all(line["same"] for line in lines)
    bound = {pod for line in lines for pod in line["binds"]}
    assert len(bound) == 3 + 9 + 6
    assert not [line for line in lines if "missing" in line]

    (tmp_path / "if.yaml").write_text(f"actions: enqueue, allocate{OTHER}")
    result, others = await replayed(tmp_path, "--instead", str(tmp_path / "if.yaml"))
    assert result.exit_code == 0, result.output
    assert [line["session"] for line in others] == [line["session"] for line in lines]
    differing = [line for line in others if not line["same"]]
    assert differing, "packing differs from spreading"
    assert all("recordedBinds" in line for line in differing)
    counted = f"{len(lines)} sessions: {len(lines) - len(differing)} decided the same, "
    assert result.stderr.splitlines() == [f"{counted}{len(differing)} differently"]

    result, _ = await replayed(tmp_path, "--config", str(tmp_path / "if.yaml"))
    assert result.exit_code == 0, result.output
    assert (
        "if.yaml: no session was decided with it; to decide with it, use --instead" in result.stderr
    )


async def test_no_session_misses_records_after_a_restart(tmp_path: Path) -> None:
    """Each start announces the epochs of the services: records that no service reads."""
    for name in ("a", "b"):
        async with cells.running(tmp_path, "enqueue, allocate", TIERS) as cell:
            (tmp_path / "was.yaml").write_text((tmp_path / "scheduler.yaml").read_text())
            await cell.submit(name, 3)
            await cell.nodes_of(name, 3)
            await cell.delete(name)
            await cell.until(cell.places, lambda places: not places)
            await cell.until(lambda: is_kept(tmp_path), bool)
    assert compact(tmp_path) > 0
    result, lines = await replayed(tmp_path)
    assert result.exit_code == 0, result.output
    assert len({pod for line in lines for pod in line["binds"]}) == 6
    assert not [line for line in lines if "missing" in line]


async def test_a_new_configuration_is_checked_while_the_system_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the present state over REST, and on the recorded sessions of a copy of its log, which is
    that of .strom unless another one is named."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".strom").symlink_to(tmp_path)
    monkeypatch.chdir(folder)
    async with cells.running(tmp_path, "enqueue, allocate", TIERS) as cell:
        (tmp_path / "same.yaml").write_text((tmp_path / "scheduler.yaml").read_text())
        (tmp_path / "packs.yaml").write_text(f"actions: enqueue, allocate{OTHER}")
        await cell.submit("a", 3)
        await cell.nodes_of("a", 3)
        await cell.submit("b", 4)
        await cell.nodes_of("b", 4)
        await cell.submit("wide", 64)
        await cell.until(lambda: is_kept(tmp_path), bool)

        async def checked(name: str) -> tuple[Result, dict[str, Any]]:
            command = ["scheduler", "check", str(tmp_path / name), "--server", cell.url]
            command += ["--current", str(tmp_path / "same.yaml"), "--output", "json"]
            result = await asyncio.to_thread(CliRunner().invoke, main.app, command)
            return result, json.loads(result.stdout.splitlines()[-1])

        # The history is behind the sessions until the last job is pending and nothing changes.
        result, found = await cell.until(
            lambda: checked("same.yaml"), lambda it: it[1]["incomplete"] == 0
        )
        assert (result.exit_code, found["gangs"], found["sessions"]) == (0, [], []), result.output
        assert found["replayed"] >= 4
        result, found = await checked("packs.yaml")
        assert result.exit_code == 1, result.output
        gangs = [gang for each in found["sessions"] for gang in each["gangs"]]
        assert "default/a" in {gang["job"] for gang in gangs}
        assert any(gang["pod_group"].startswith("default/a-") for gang in gangs)
        places = await cell.places()
        assert len([node for node in places.values() if node]) == 3 + 4


async def test_sessions_are_replayed_while_the_system_runs(tmp_path: Path) -> None:
    async with cells.running(tmp_path, "enqueue, allocate", TIERS) as cell:
        (tmp_path / "was.yaml").write_text((tmp_path / "scheduler.yaml").read_text())
        await cell.submit("a", 3)
        await cell.nodes_of("a", 3)
        await cell.until(lambda: is_kept(tmp_path), bool)
        result, lines = await replayed(tmp_path)
        assert result.exit_code == 0, result.output
        assert len({pod for line in lines for pod in line["binds"]}) == 3
        await cell.submit("b", 3)
        await cell.nodes_of("b", 3)


async def test_a_job_is_explained_at_a_past_time(tmp_path: Path) -> None:
    """After it runs, and while the system runs; a time before the log has no answer."""
    async with cells.running(tmp_path, "enqueue, allocate", TIERS) as cell:
        await cell.submit("runs", 16)
        await cell.nodes_of("runs", 16)
        await cell.submit("waits", 16)
        await cell.until(lambda: is_kept(tmp_path), bool)

        async def explained(*more: str) -> Result:
            command = ["explain", "waits", *more, "--server", cell.url]
            return await asyncio.to_thread(CliRunner().invoke, main.app, command)

        async with AsyncClient(cell.url) as client:
            # It is pending before the scheduler has read it, too.
            await cell.until(
                lambda: client.explanation("waits"), lambda it: it.explained is not None
            )
        then = (await explained()).stdout
        at = datetime.now(UTC)
        await cell.delete("runs")
        await cell.nodes_of("waits", 16)
        await cell.until(lambda: is_kept(tmp_path), bool)
        past = ["--log", str(tmp_path), "--config", str(tmp_path / "scheduler.yaml")]
        result = await explained("--at", at.isoformat(), *past)
        assert result.exit_code == 0, result.output
        assert f"default/waits was pending at {at.isoformat()}: " in result.stdout
        facts = [line for line in then.splitlines()[1:] if not line.startswith("  starts")]
        assert result.stdout.splitlines()[1:] == facts
        result = await explained("--at", "2020-01-01T00:00:00Z", *past)
        assert result.exit_code == 1
        assert "next: use a time from 20" in result.output
        result = await explained("--at", at.isoformat(), *past[:2])
        assert result.exit_code == 1
        assert "--config FILE" in result.output


async def test_replay_does_not_create_a_missing_log(tmp_path: Path) -> None:
    (tmp_path / "was.yaml").write_text(f"actions: allocate{TIERS}")
    result, lines = await replayed(tmp_path)
    assert (result.exit_code, lines) == (1, [])
    assert result.stderr == (
        f"strom: {state_folder.embedded(tmp_path) / state_folder.LOG}: this folder has no log\n"
        "next: specify the folder of strom up, or a broker as HOST:PORT\n"
    )
    assert not state_folder.embedded(tmp_path).exists()
