"""What a node's data cache keeps: eviction, restarts, damage and loss."""

import os
import shutil
from pathlib import Path

import pytest

from services.monitor.tests.data_caches import Node, Origin, digest_of, lay, want
from stromboli.monitor.data_cache import entries, store
from stromboli.shared.messages import data

FILES = {"a.bin": b"a" * 1000, "sub/b.bin": b"b" * 500}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "cache", capacity_bytes=10_000)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    lay(tmp_path / "source", FILES)
    return tmp_path / "source"


# --- room -----------------------------------------------------------------------------------


def numbered(tmp_path: Path, count: int, size: int) -> list[data.WantedCopy]:
    return [
        want(lay(tmp_path / f"set{number}", {"f": bytes([number]) * size}), bytes=size)
        for number in range(count)
    ]


def test_copies_that_are_not_wanted_are_evicted_for_others_the_longest_unused_first(
    node: Node, tmp_path: Path
) -> None:
    first, second, third = numbered(tmp_path, 3, 4000)
    for item in (first, second):
        node.want(item)
        node.settle(10)
    node.want(third)
    node.settle(10)
    assert [node.state(each) for each in (first, second, third)] == ["", "Complete", "Complete"]
    assert not node.content(first).exists()


def test_a_copy_in_use_is_never_evicted(node: Node, tmp_path: Path) -> None:
    first, second, third = numbered(tmp_path, 3, 4000)
    node.want(first, second)
    node.settle()
    node.cache.use(frozenset({first.key, second.key}))
    node.want(third)
    node.settle()
    assert node.state(third) == "Waiting"
    assert node.reason(third).startswith("short of room: needs 4.0 kB, 2.0 kB are free, 0 bytes")
    node.cache.use(frozenset({second.key}))
    node.settle()
    assert [node.state(each) for each in (first, second, third)] == ["", "Complete", "Complete"]


def test_a_use_counts_until_it_ends(node: Node, tmp_path: Path) -> None:
    first, second, third = numbered(tmp_path, 3, 4000)
    node.want(first, second)
    node.settle()
    node.cache.use(frozenset({first.key}))
    node.settle(1000)
    node.cache.use(frozenset())
    node.want(third)
    node.settle()
    assert [node.state(each) for each in (first, second, third)] == ["Complete", "", "Complete"]


def test_content_larger_than_stated_makes_its_room_or_waits_for_it(
    node: Node, tmp_path: Path
) -> None:
    (old, new), used = numbered(tmp_path, 2, 6000), numbered(tmp_path / "u", 1, 3000)[0]
    small = want(new.uri, bytes=10)
    node.want(old, used)
    node.settle()
    node.cache.use(frozenset({old.key, used.key}))
    node.want(small)
    node.settle()
    assert node.reason(small).startswith("short of room: needs 6.0 kB")
    node.cache.use(frozenset({used.key}))
    node.settle()
    assert node.state(small) == "Complete"
    assert node.state(old) == ""


def test_content_of_unknown_size_stays_within_the_capacity(node: Node) -> None:
    origin = Origin({"a": b"a" * 3_000_000})
    origin.stated["a"] = None
    node.opened = origin
    item = want("memory://set")
    node.want(item)
    node.settle()
    assert node.state(item) == "Failed"
    assert "the cache cannot make room for it" in node.reason(item)
    assert node.cache.report().used_bytes <= 10_000


def test_content_of_unknown_size_that_fits_is_fetched(node: Node) -> None:
    origin = Origin(FILES)
    origin.stated = dict.fromkeys(FILES, None)
    node.opened = origin
    item = want("memory://set")
    node.want(item)
    node.settle()
    assert node.files(item) == FILES


def test_the_reserve_of_the_disk_limits_the_capacity(tmp_path: Path, source: Path) -> None:
    node = Node(tmp_path / "cache", capacity_bytes=10_000, disk_reserve_bytes=2**60)
    item = want(f"file://{source}", bytes=1500)
    node.want(item)
    node.settle()
    assert node.cache.report().capacity_bytes == 0
    assert node.state(item) == "Waiting"


def test_a_fetch_that_is_no_longer_wanted_stops_and_another_has_the_room(node: Node) -> None:
    large, other = Origin({"a": b"a" * 9000, "b": b"b" * 900}), Origin({"f": b"x" * 5000})
    first, second = want("memory://large"), want("memory://other", bytes=5000)
    node.opened = lambda uri, _: large if uri == first.uri else other
    large.on_read = lambda path: node.want(second) if path == "b" else None
    node.want(first)
    node.settle()
    assert [node.state(each) for each in (first, second)] == ["", "Complete"]
    assert not node.content(first).exists()


# --- restarts, damage and loss --------------------------------------------------------------


def test_a_restarted_cache_has_its_copies_and_when_they_were_used(node: Node, source: Path) -> None:
    item = want(f"file://{source}", digest_of(FILES))
    node.want(item)
    node.settle()
    before = node.cache.report()
    node.restart()
    assert node.cache.report() == before


def test_a_restarted_cache_protects_what_pods_use_before_the_monitor_responds(
    node: Node, tmp_path: Path
) -> None:
    used, other = numbered(tmp_path, 2, 6000)
    node.want(want(used.uri, pinned=True))
    node.settle()
    node.restart()
    (Path(node.settings.root) / ".wanted.json").write_text("?")
    node.restart()
    node.settle()
    data_copy = node.copy(used)
    assert data_copy is not None
    assert data_copy.in_use, "nothing is known, so everything may be in use"
    node.want(other)
    node.settle()
    assert node.state(other) == "Complete"


@pytest.mark.parametrize("is_restarted", [True, False], ids=["at start", "in operation"])
def test_a_changed_file_makes_the_copy_corrupt_and_it_is_fetched_again(
    node: Node, source: Path, is_restarted: bool
) -> None:
    item = want(f"file://{source}", digest_of(FILES))
    node.want(item)
    node.settle()
    path = node.content(item) / "a.bin"
    path.chmod(0o644)
    path.write_bytes(b"y" * 1000)
    if is_restarted:
        node.restart()
        assert not node.content(item).exists()
    node.settle(61)
    assert node.files(item) == FILES


def test_damage_that_changes_no_time_is_found_by_the_digest(node: Node, source: Path) -> None:
    """As a disk does it."""
    item = want(f"file://{source}", digest_of(FILES))
    node.want(item)
    node.settle()
    path = node.content(item) / "a.bin"
    times = path.stat()
    path.chmod(0o644)
    path.write_bytes(b"y" * 1000)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    node.settle(61)
    assert node.files(item)["a.bin"] == b"y" * 1000, "the cheap check cannot see it"
    node.settle(86_400)
    assert node.files(item) == FILES


def test_files_that_are_added_make_a_copy_corrupt(node: Node, source: Path) -> None:
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    node.content(item).chmod(0o755)
    (node.content(item) / "more").write_bytes(b"")
    node.settle(61)
    assert node.files(item) == FILES


@pytest.mark.parametrize("is_restarted", [True, False], ids=["at start", "in operation"])
def test_a_vanished_copy_is_fetched_again(node: Node, source: Path, is_restarted: bool) -> None:
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    node.content(item).chmod(0o755)
    node.content(item).rename(source.parent / "away")
    if is_restarted:
        node.restart()
    node.settle()
    assert node.files(item) == FILES


@pytest.mark.parametrize("is_restarted", [False, True])
def test_no_directory_can_be_created_in_the_place_of_a_lost_copy_until_it_is_fetched_again(
    node: Node, source: Path, *, is_restarted: bool
) -> None:
    """Container runtimes create missing directories, and would start a container without data."""
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    shutil.rmtree(node.content(item).parent)
    node.cache.step()  # its fetch has not run yet
    if is_restarted:
        node.restart()
    with pytest.raises(FileExistsError):
        node.content(item).mkdir(parents=True)
    assert not node.content(item).is_dir()
    node.settle()
    assert node.files(item) == FILES
    assert not node.content(item).is_symlink()


def test_no_directory_can_be_created_in_the_place_of_a_copy_that_is_fetched(
    node: Node, source: Path
) -> None:
    item = want(f"file://{source}")
    node.want(item)
    node.cache.step()  # its fetch has not run yet
    with pytest.raises(FileExistsError):
        node.content(item).mkdir(parents=True)
    node.settle()
    assert node.files(item) == FILES


def test_a_directory_that_others_created_in_the_place_of_a_copy_is_deleted(
    node: Node, source: Path
) -> None:
    """For a container that restarts after its copy was evicted, because the pod was unknown. Later
    pods must not start with it."""
    item = want(f"file://{source}")
    node.want()
    node.content(item).mkdir(parents=True)
    node.settle()
    assert not node.content(item).parent.exists()
    node.content(item).mkdir(parents=True)
    node.want(item)
    node.cache.step()
    assert not node.content(item).is_dir()
    node.settle()
    assert node.files(item) == FILES


@pytest.mark.parametrize("is_restarted", [False, True])
def test_nothing_stays_of_a_lost_copy_that_is_no_longer_wanted(
    node: Node, source: Path, *, is_restarted: bool
) -> None:
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    shutil.rmtree(node.content(item))
    node.cache.step()
    node.want()
    if is_restarted:
        node.restart()
    node.settle()
    assert not node.content(item).parent.exists()


def test_a_vanished_copy_that_is_not_wanted_is_forgotten(node: Node, source: Path) -> None:
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    node.want()
    node.content(item).chmod(0o755)
    node.content(item).rename(source.parent / "away")
    node.settle()
    assert node.cache.report().copies == ()
    assert node.cache.report().used_bytes == 0


def test_content_without_a_description_is_not_a_copy(node: Node, source: Path) -> None:
    """It was not verified, or the description was lost."""
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    (Path(node.settings.root) / item.key / "copy.json").write_bytes(b"{")
    node.restart()
    assert not node.content(item).exists()
    node.settle()
    assert node.files(item) == FILES


def test_a_description_of_another_key_is_not_used(node: Node, source: Path, tmp_path: Path) -> None:
    """A renamed folder would offer its content under the name of another data set."""
    item, other = want(f"file://{source}"), numbered(tmp_path, 1, 100)[0]
    node.want(item)
    node.settle()
    root = Path(node.settings.root)
    (root / item.key).rename(root / other.key)
    node.restart()
    node.want(other)
    node.settle()
    assert node.files(other) == {"f": b"\0" * 100}


def test_an_eviction_that_was_interrupted_is_finished_at_start(node: Node, source: Path) -> None:
    lay(Path(node.settings.root) / ".trash" / "k-1-0", FILES)
    node.restart()
    assert list((Path(node.settings.root) / ".trash").iterdir()) == []


def test_a_folder_belongs_to_one_process(node: Node) -> None:
    second = store.CacheFolder(Path(node.settings.root))
    with pytest.raises(store.CacheFolderError, match="another process uses the cache"):
        second.open()


def test_the_state_of_a_key_is_the_reason_why_a_pod_waits(node: Node, source: Path) -> None:
    item = want(f"file://{source}", bytes=1500)
    expected = f"{item.key} is not requested on this node yet"
    assert entries.state_of(node.cache.report(), item.key) == expected
    node.want(item)
    node.cache.step()
    assert (
        entries.state_of(node.cache.report(), item.key) == f"{item.uri} (1.5 kB) is being fetched"
    )
    node.settle()
    assert entries.state_of(node.cache.report(), item.key) == f"{item.uri} (1.5 kB) is complete"


def test_a_report_with_too_many_copies_has_the_wanted_and_the_last_used_ones(
    node: Node, tmp_path: Path
) -> None:
    """A longer one would be rejected, and the node would count as silent."""
    items = numbered(tmp_path, 4, 100)
    for item in items:
        node.want(item)
        node.settle(10)
    copies = node.cache.report().copies
    wanted = {items[0].key}
    data_copies = entries.most_relevant(copies, wanted, 2)
    assert {copy.key for copy in data_copies} == wanted | {items[3].key}
    assert entries.most_relevant(copies, wanted, 4) == copies
