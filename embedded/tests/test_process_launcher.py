"""Real processes below a real launcher, in every view of the machine that is allowed here."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stromboli.embedded.processes import launcher_client, machine
from stromboli.embedded.processes.launcher import isolated_root, segments
from stromboli.embedded.processes.launcher import main as launcher
from stromboli.embedded.processes.output import Output

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")

KEEP_BYTES = 16 * 1024 * 1024
STUBBORN = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 987' &) ; echo on; sleep 987"
"""Ignores SIGTERM, and so does a child in its own session; prints a line when both run."""


@pytest.fixture(scope="module")
def views() -> list[str]:
    best, _ = asyncio.run(machine.view())
    return {"root": ["root", "user", "plain"], "user": ["user", "plain"]}.get(best, ["plain"])


ISOLATED = ["isolated root", "isolated user"]


@pytest.fixture(params=["root", "user", "plain", *ISOLATED])
def view(request: pytest.FixtureRequest, views: list[str]) -> str:
    if request.param.removeprefix("isolated ") not in views:
        pytest.skip(f"this machine does not allow the view {request.param}")
    return str(request.param)


class LauncherRunner:
    """Starts containers; ``uid`` marks their processes, and is that of no other test."""

    def __init__(self, folder: Path, view: str) -> None:
        self.folder, self.view, self.uid = folder, view, os.urandom(8).hex()
        self.output = Output(folder / "log")

    async def start(
        self, *command: str, mounts: dict[str, Path] | None = None, **fields: Any
    ) -> launcher_client.ContainerProcess:
        """Start a container. Mounts are read-only unless their path begins with "+"."""
        (self.folder / "log").mkdir()
        (self.folder / "root").mkdir()
        shown = (*machine.VISIBLE, *fields.get("visible", ()))
        isolation = isolated_root.Isolation(
            visible=isolated_root.visible_paths(shown), devices=fields.get("devices", [])
        )
        view = launcher.ContainerView(
            folder=str(self.folder / "root"),
            mounts=[
                {
                    "source": str(source),
                    "target": target.removeprefix("+"),
                    "read_only": not target.startswith("+"),
                }
                for target, source in (mounts or {}).items()
            ],
            hostname="pod-0",
            as_root=self.view.endswith("root"),
            isolation=isolation if self.view in ISOLATED else None,
        )
        spec = launcher.Spec(
            command=list(command),
            entry=fields.get("entry", []),
            environment={**machine.environment(), launcher_client.MARK: self.uid},
            working_directory=fields.get("folder", "/"),
            log=str(self.folder / "log"),
            keep_bytes=KEEP_BYTES,
            memory_bytes=fields.get("memory_bytes", 0),
            view=None if self.view == "plain" else view,
        )
        return await launcher_client.start_container(spec, self.output, self.uid)

    async def run(self, *command: str, **fields: Any) -> tuple[launcher_client.Outcome, str]:
        process = await self.start(*command, **fields)
        outcome = await process.events(lambda: None)
        return outcome, (await self.read()).decode()

    async def read(self) -> bytes:
        chunks = self.output.chunks(follow=True, tail_lines=None)
        return b"".join([chunk async for chunk in chunks])

    def alive(self) -> list[int]:
        """Processes that carry the mark, seen from outside."""
        return launcher_client.processes_of(self.uid)


@pytest.fixture
async def place(tmp_path: Path, view: str) -> AsyncIterator[LauncherRunner]:
    launcher_runner = LauncherRunner(tmp_path, view)
    yield launcher_runner
    assert launcher_runner.alive() == []


async def begun(process: launcher_client.ContainerProcess) -> asyncio.Task[launcher_client.Outcome]:
    """The run as a task, once its command runs."""
    started = asyncio.Event()
    task = asyncio.create_task(process.events(started.set))
    await started.wait()
    return task


async def said(place: LauncherRunner, word: bytes) -> None:
    """Return once the container has written a word."""
    async for chunk in place.output.chunks(follow=True, tail_lines=None):
        if word in chunk:
            return


async def test_output_and_exit_code_come_back(place: LauncherRunner) -> None:
    outcome, text = await place.run("sh", "-c", "echo out; echo err >&2; exit 7")
    assert outcome == launcher_client.Outcome(7)
    assert text == "out\nerr\n"


async def test_a_signal_is_an_exit_code_above_128(place: LauncherRunner) -> None:
    outcome, _ = await place.run("sh", "-c", "kill -9 $$")
    assert outcome.exit_code == 137


@pytest.mark.parametrize(
    ("command", "fields", "reason"),
    [
        ("no-such-command", {}, "exec no-such-command: No such file"),
        ("true", {"folder": "/no/such/folder"}, "working directory /no/such/folder"),
    ],
)
async def test_what_cannot_start_reports_the_reason(
    place: LauncherRunner, command: str, fields: dict[str, Any], reason: str
) -> None:
    outcome, _ = await place.run(command, **fields)
    assert outcome.exit_code == 128
    assert outcome.refused.startswith(reason)


async def test_signals_reach_the_command_and_it_may_end_in_its_own_way(
    place: LauncherRunner,
) -> None:
    process = await place.start("sh", "-c", "trap 'echo bye; exit 5' TERM; echo on;sleep 987& wait")
    task = await begun(process)
    await said(place, b"on")
    process.stop(30)
    assert (await task).exit_code == 5
    assert (await place.read()).endswith(b"bye\n")


async def test_after_the_grace_everything_is_killed_also_forks_that_ignore_signals(
    place: LauncherRunner,
) -> None:
    process = await place.start("sh", "-c", STUBBORN)
    task = await begun(process)
    await said(place, b"on")
    process.stop(0.2)
    assert (await task).exit_code == 137
    assert place.alive() == []


async def test_with_the_command_ends_what_it_left_behind(place: LauncherRunner) -> None:
    outcome, _ = await place.run("sh", "-c", "(setsid sleep 987 &); exit 0")
    assert outcome.exit_code == 0
    assert place.alive() == []


async def test_a_run_without_its_node_is_killed(place: LauncherRunner) -> None:
    """As when its node dies."""
    process = await place.start("sh", "-c", STUBBORN)
    task = await begun(process)
    await said(place, b"on")
    task.cancel()
    await asyncio.wait([task])
    assert place.alive() == []


async def test_processes_of_a_killed_launcher_are_killed_too(place: LauncherRunner) -> None:
    process = await place.start("sh", "-c", STUBBORN)
    task = await begun(process)
    await said(place, b"on")
    process._process.kill()
    assert (await task).exit_code == 137


async def test_a_container_has_its_standard_files_and_none_of_its_launchers(
    place: LauncherRunner,
) -> None:
    """With these it could impersonate its launcher."""
    outcome, text = await place.run("ls", "/proc/self/fd")
    assert outcome == launcher_client.Outcome(0)
    listing = "3"
    assert text.split() == ["0", "1", "2", listing]


async def test_a_container_over_its_memory_limit_is_killed_for_it(place: LauncherRunner) -> None:
    hungry = "import time; kept = bytearray(200 << 20); time.sleep(987)"
    outcome, _ = await place.run(sys.executable, "-S", "-c", hungry, memory_bytes=100 << 20)
    assert (outcome.exit_code, outcome.is_out_of_memory) == (137, True)


async def test_memory_that_forks_share_counts_once(place: LauncherRunner) -> None:
    sharing = (
        "import os, time; kept = b'x' * (60 << 20)\n"
        "for _ in range(3):\n"
        "    if not os.fork(): time.sleep(0.6); os._exit(0)\n"
        "time.sleep(0.6)"
    )
    outcome, _ = await place.run(sys.executable, "-S", "-c", sharing, memory_bytes=150 << 20)
    assert outcome == launcher_client.Outcome(0)


async def test_a_command_beside_answers_with_its_code_and_words(place: LauncherRunner) -> None:
    process = await place.start("sleep", "987")
    task = await begun(process)
    assert await process.execute(("sh", "-c", "echo fine"), 30) == (True, "fine")
    assert await process.execute(("sh", "-c", "echo ill; exit 3"), 30) == (False, "ill")
    assert await process.execute(("sleep", "987"), 0.1) == (False, "no answer within 0.1s")
    is_good, message = await process.execute(("no-such-command",), 30)
    assert (is_good, "no-such-command" in message) == (False, True)
    process.stop(0)
    assert (await task).exit_code in (137, 143)


async def test_200_mb_of_output_are_bounded_on_disk_and_the_last_of_it_is_whole(
    place: LauncherRunner,
) -> None:
    outcome, _ = await place.run("seq", "1", "24000000")
    assert outcome == launcher_client.Outcome(0)
    written = sum(9 * 10**digits * (digits + 2) for digits in range(7)) + 14000001 * 9
    assert written > 200_000_000
    on_disk = sum(path.stat().st_size for path in segment_files(place.folder / "log"))
    assert KEEP_BYTES <= on_disk <= KEEP_BYTES + segments.SEGMENT_BYTES
    first, _, kept = (await place.read()).partition(b"\n")
    assert first == b"[%d earlier bytes are no longer kept]" % (written - on_disk)
    lines = (b"%d\n" % number for number in range(24000001 - len(kept) // 9 - 1, 24000001))
    assert b"".join(lines).endswith(kept)


async def test_below_the_bound_nothing_is_lost(place: LauncherRunner) -> None:
    outcome, text = await place.run("sh", "-c", "seq 1 1500000")
    assert outcome == launcher_client.Outcome(0)
    assert text == "".join(f"{number}\n" for number in range(1, 1500001))


@pytest.mark.parametrize("view", ["root", "user", *ISOLATED], indirect=True)
async def test_mounts_are_at_their_paths_and_the_machine_stays_as_it_is(
    place: LauncherRunner, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "file").write_text("inside\n")
    mounts = {"/etc/strom-test": volume, "/strom-new/a/b": volume, "/etc/hosts": volume / "file"}
    script = (
        "cat /etc/strom-test/file /strom-new/a/b/file /etc/hosts; hostname; "
        "echo x > /etc/strom-test/other || echo refused; ls -d /usr; ls /proc | grep -c '^[0-9]'"
    )
    _, text = await place.run("sh", "-c", script, mounts=mounts)
    lines = [line for line in text.splitlines() if not line.startswith("sh:")]
    assert lines[:6] == ["inside", "inside", "inside", "pod-0", "refused", "/usr"]
    assert int(lines[6]) < 8, "other processes of the machine are seen"
    assert {"strom-test", "strom-new"}.isdisjoint([*os.listdir("/etc"), *os.listdir("/")])


isolated = pytest.mark.parametrize("view", ISOLATED, indirect=True)


@isolated
async def test_isolated_containers_see_system_folders_and_none_of_the_machines_files(
    place: LauncherRunner, tmp_path: Path
) -> None:
    shown, hidden = tmp_path / "shown", tmp_path / "hidden"
    for folder in (shown, hidden):
        folder.mkdir()
        (folder / "file").write_text("text\n")
    script = f"ls /; echo -; cat {shown}/file; cat {hidden}/file; ls {tmp_path}; cat /etc/shadow"
    _, text = await place.run("sh", "-c", script, visible=[str(shown)])
    root, _, files = text.partition("-\n")
    known = {"bin", "dev", "etc", "lib", "lib64", "opt", "proc", "sbin", "sys", "usr", "var"}
    visible = {Path(path).parts[1] for path in (sys.prefix, sys.base_prefix, str(shown))}
    assert {"dev", "etc", "proc", "sys", "usr"} <= set(root.split()) - visible <= known
    assert files.splitlines() == ["text", f"cat: {hidden}/file: No such file or directory", "shown"]


@isolated
async def test_isolated_containers_write_to_their_own_folders_only(
    place: LauncherRunner, tmp_path: Path
) -> None:
    """Also where root of the machine may write everything, and in settings of the kernel."""
    own, given, shown = tmp_path / "own", tmp_path / "given", tmp_path / "shown"
    for folder in (own, given, shown):
        folder.mkdir()
    refused = (
        *("/x", "/etc/x", "/usr/x", "/var/x", "/dev/x", "/sys/x", "/volume/read-only/x"),
        *(f"{shown}/x", "/proc/sys/kernel/domainname", "/proc/sysrq-trigger"),
    )
    allowed = ("/tmp/x", "/volume/x", "/dev/shm/x", "/dev/null")
    script = "; ".join(
        f"(echo x > {path}) 2>/dev/null && echo {path}" for path in (*refused, *allowed)
    )
    mounts = {"+/tmp": own, "+/volume": given, "/volume/read-only": shown}
    _, text = await place.run("sh", "-c", script, mounts=mounts, visible=[str(shown)])
    assert text.split() == list(allowed)
    assert (own / "x").exists()
    assert list(shown.iterdir()) == []


@isolated
@pytest.mark.parametrize(
    "attempt",
    [
        "mount -o remount,rw,bind /usr",
        "mount -t tmpfs none /usr",
        "umount /proc/sys",
        "mknod /tmp/x b 7 0",
        "unshare -m true",
        "unshare -Ur sh -c 'mount -o remount,rw,bind /usr'",
        "nsenter -t 1 -m true",
        "cat /proc/1/environ",
        "ls /proc/1/root/",
        "sysctl -w kernel.domainname=x",
        "chroot /proc/1/root true",
    ],
)
async def test_isolated_commands_cannot_undo_it(
    place: LauncherRunner, tmp_path: Path, attempt: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    outcome, text = await place.run("sh", "-c", attempt, mounts={"+/tmp": own})
    assert outcome.exit_code not in (0, 127, 128), text


@isolated
async def test_isolated_containers_share_no_memory_with_the_machine(place: LauncherRunner) -> None:
    _, text = await place.run(
        "sh", "-c", "readlink /proc/self/ns/ipc; tail -n +2 /proc/sysvipc/shm"
    )
    assert text.strip() != os.readlink("/proc/self/ns/ipc")
    assert len(text.splitlines()) == 1


@isolated
async def test_isolated_containers_have_the_usual_devices_and_those_given(
    place: LauncherRunner,
) -> None:
    script = "ls /dev; head -c 4 /dev/urandom | wc -c; echo x > /dev/full || echo full"
    _, text = await place.run("sh", "-c", script, devices=["/dev/kmsg"])
    lines = [line for line in text.splitlines() if not line.startswith("sh:")]
    assert set(lines[:-2]) == {
        *isolated_root.DEVICES,
        *("fd", "kmsg", "mqueue", "ptmx", "pts", "shm", "stderr", "stdin", "stdout"),
    }
    assert lines[-2:] == ["4", "full"]


@isolated
async def test_a_visible_folder_in_an_own_folder_is_read_only_there(
    place: LauncherRunner, tmp_path: Path
) -> None:
    """As a Python environment in a home folder."""
    home, environment = tmp_path / "home", tmp_path / "home-of-the-user" / "venv"
    home.mkdir()
    environment.mkdir(parents=True)
    (environment / "file").write_text("text\n")
    (environment.parent / "secret").write_text("text\n")
    script = (
        f"cd {environment.parent}; ls; cat venv/file; echo x > venv/x || echo refused; echo x > y"
    )
    _, text = await place.run(
        "sh", "-c", script, mounts={f"+{environment.parent}": home}, visible=[str(environment)]
    )
    lines = [line for line in text.splitlines() if not line.startswith("sh:")]
    assert lines == ["venv", "text", "refused"]
    assert sorted(path.name for path in home.iterdir()) == ["venv", "y"]


def tree_of(*mounts: str, visible: tuple[str, ...]) -> dict[str, Any]:
    given = [{"source": f"/of{path}", "target": path, "read_only": False} for path in mounts]
    return isolated_root.root_tree(given, visible, resolve=str)


def test_visible_paths_below_visible_paths_are_shown_with_them() -> None:
    assert tree_of(visible=("/usr", "/usr/local", "/usrx")) == {
        "usr": {".": "/usr"},
        "usrx": {".": "/usrx"},
    }


def test_a_volume_replaces_a_visible_path() -> None:
    tree = tree_of("/opt", visible=("/opt", "/usr"))
    assert set(tree["opt"]) == {""}


def test_a_visible_path_below_a_volume_is_mounted_into_it() -> None:
    tree = tree_of("/opt", "/opt/a/b", visible=("/opt/a", "/usr"))
    assert tree["opt"]["a"][""] == {"source": "/opt/a", "target": "/opt/a", "read_only": True}
    assert tree["opt"]["a"]["b"][""]["source"] == "/of/opt/a/b"


def test_links_are_visible_with_their_targets(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = isolated_root.visible_paths([str(tmp_path / "link"), str(tmp_path / "missing")])
    assert found == [str(tmp_path / "link"), str(tmp_path / "real")]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(0, b""), (1, b"c"), (2, b"b\nc"), (3, b"a\nb\nc"), (9, b"a\nb\nc")],
)
@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_the_last_lines_can_be_read_alone(
    tmp_path: Path, lines: int, expected: bytes, end: bytes
) -> None:
    """Across the borders of files; an unfinished line counts."""
    log = segments.Segments(str(tmp_path), KEEP_BYTES, segment_bytes=2)
    log.write(b"a\nb\nc" + end)
    chunks = Output(tmp_path, is_over=True).chunks(follow=False, tail_lines=lines)
    assert b"".join([chunk async for chunk in chunks]) == (expected + end if expected else b"")


def test_segments_keep_the_last_bytes_and_no_more_than_one_file_beyond(tmp_path: Path) -> None:
    log = segments.Segments(str(tmp_path), keep_bytes=10, segment_bytes=4)
    for number in range(60):
        log.write(b"%d" % (number % 10))
    kept = b"".join(path.read_bytes() for path in segment_files(tmp_path))
    assert b"".join(b"%d" % (number % 10) for number in range(60)).endswith(kept)
    assert 10 <= len(kept) <= 14
    assert len(list(tmp_path.glob(f"*{segments.TIMES}"))) == len(segment_files(tmp_path))


def segment_files(folder: Path) -> list[Path]:
    """The files with output, without their indexes of times."""
    return sorted(path for path in folder.iterdir() if path.suffix != segments.TIMES)


async def read_lines(folder: Path, **part: Any) -> list[str]:
    """The lines of an output that is over."""
    chunks = Output(folder, is_over=True).chunks(follow=False, tail_lines=None, **part)
    return b"".join([chunk async for chunk in chunks]).decode().splitlines()


async def test_each_line_has_the_time_at_which_its_first_byte_arrived(tmp_path: Path) -> None:
    """Also over the end of a segment, and where a line arrives in pieces."""
    log = segments.Segments(str(tmp_path), KEEP_BYTES, segment_bytes=20)
    before = datetime.now(UTC)
    for piece in (b"one\ntw", b"o\n", b"three is longer than a segment\nfour"):
        log.write(piece)
    lines = await read_lines(tmp_path, timestamps=True)
    assert [line.partition(" ")[2] for line in lines] == [
        "one",
        "two",
        "three is longer than a segment",
        "four",
    ]
    times = [datetime.fromisoformat(line.partition(" ")[0]) for line in lines]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= datetime.now(UTC)


async def test_lines_before_a_time_are_left_out(tmp_path: Path) -> None:
    log = segments.Segments(str(tmp_path), KEEP_BYTES)
    log.write(b"early\n")
    log.write(b"late\n")
    index = tmp_path / (segments.name_of(0) + segments.TIMES)
    entries = ((0, 1_000_000_000), (6, 4_999_999_999))
    index.write_bytes(b"".join(segments.TIME.pack(*entry) for entry in entries))
    since = datetime.fromtimestamp(5, UTC)
    assert await read_lines(tmp_path, since=since) == ["late"]
    assert await read_lines(tmp_path, since=since, timestamps=True) == [
        "1970-01-01T00:00:04.999999999Z late"
    ]


def test_an_index_of_times_is_at_most_as_large_as_its_segment(tmp_path: Path) -> None:
    """A container that writes single bytes slowly must not fill the disk with times."""
    log = segments.Segments(str(tmp_path), KEEP_BYTES, segment_bytes=64)
    for number in range(60):
        log.note_time(number * segments.TIME_STEP_NS)
    (index,) = tmp_path.glob(f"*{segments.TIMES}")
    assert index.stat().st_size == 64


async def test_what_orphans_have_used_is_measured_at_the_end(place: LauncherRunner) -> None:
    """A process in a session of its own outlives its parent, and is killed with the container."""
    burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.5: pass'"
    orphan = f'(setsid sh -c "{burn}; echo done; sleep 987" &); sleep 987'
    process = await place.start("sh", "-c", orphan)
    task = await begun(process)
    await said(place, b"done")
    process.stop(0.0)
    await task
    assert (process.used or (0, 0))[0] >= 500
