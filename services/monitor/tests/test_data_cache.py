"""How data sets arrive in a node's cache: real files, and every way in which fetches fail."""

import errno
import os
from pathlib import Path

import pytest

from services.monitor.tests.data_caches import Node, Origin, digest_of, lay, want
from stromboli.shared.messages import data

FILES = {"a.bin": b"a" * 1000, "sub/b.bin": b"b" * 500}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "cache", capacity_bytes=10_000)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    lay(tmp_path / "source", FILES)
    return tmp_path / "source"


# --- fetching -------------------------------------------------------------------------------


def test_a_wanted_data_set_is_fetched_and_reported_with_its_digest(
    node: Node, source: Path
) -> None:
    item = want(f"file://{source}", bytes=1500)
    node.want(item)
    node.settle()
    assert node.files(item) == FILES
    assert node.copy(item) == data.DataCopy(
        key=item.key,
        uri=item.uri,
        digest=digest_of(FILES),
        bytes=1500,
        state="Complete",
        fetched_bytes=1500,
        last_used_at=node.now,
    )
    report = node.cache.report()
    assert (report.node, report.capacity_bytes, report.used_bytes) == ("n1", 10_000, 1500)


def test_a_single_file_is_below_its_base_name(node: Node, source: Path) -> None:
    item = want(f"file://{source}/a.bin", digest_of({"a.bin": FILES["a.bin"]}))
    node.want(item)
    node.settle()
    assert node.files(item) == {"a.bin": FILES["a.bin"]}


def test_content_appears_only_when_it_is_complete_and_verified(node: Node, source: Path) -> None:
    """A kubelet starts the container as soon as the folder exists."""
    item = want(f"file://{source}", digest_of(FILES))
    node.want(item)
    origin = node.opened
    seen: list[bool] = []

    def watched(uri: str, allowed: object) -> object:
        seen.append(node.content(item).exists())
        return origin(uri, allowed)  # type: ignore[arg-type]  # as given

    node.opened = watched  # type: ignore[assignment]  # as above
    node.cache.step()
    assert not node.content(item).exists()
    node.settle()
    assert seen == [False]
    assert node.content(item).is_dir()


def test_pods_cannot_change_a_copy(node: Node, source: Path) -> None:
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    modes = {path.stat().st_mode & 0o222 for path in node.content(item).rglob("*")}
    assert modes == {0}
    assert node.content(item).stat().st_mode & 0o777 == 0o555


def test_content_with_another_digest_is_not_offered(node: Node, source: Path) -> None:
    item = want(f"file://{source}", "sha256:" + "0" * 64)
    node.want(item)
    node.settle()
    assert not node.content(item).exists()
    assert node.state(item) == "Failed"
    assert node.reason(item) == (
        f"the content has the digest {digest_of(FILES)}, the job requests sha256:{'0' * 64}: "
        "correct the digest, or the content at the origin (retried after 5 s)"
    )
    assert node.cache.report().used_bytes == 0


def test_a_failed_fetch_is_retried_with_growing_delays(node: Node, source: Path) -> None:
    item = want(f"file://{source}/later.bin")
    node.want(item)
    node.settle()
    assert node.reason(item) == "No such file or directory: later.bin (retried after 5 s)"
    node.settle(4)
    (source / "later.bin").write_bytes(b"now")
    node.settle(0.5)
    assert node.state(item) == "Failed"
    node.settle(1)
    assert node.files(item) == {"later.bin": b"now"}


def test_delays_grow_up_to_ten_minutes(node: Node, source: Path) -> None:
    item = want(f"file://{source}/never.bin")
    node.want(item)
    for expected in (5, 10, 20, 40, 80, 160, 320, 600, 600):
        node.settle(600)
        assert node.reason(item).endswith(f"(retried after {expected} s)")


def test_an_interrupted_fetch_resumes_with_the_files_that_are_complete(
    node: Node, tmp_path: Path
) -> None:
    origin = Origin(FILES)
    origin.fail["sub/b.bin"] = ConnectionResetError("the connection was reset")
    node.opened = origin
    item = want("memory://set", digest_of(FILES))
    node.want(item)
    node.settle()
    assert "the connection was reset" in node.reason(item)
    assert node.cache.report().used_bytes == 1250
    origin.fail.clear()
    node.restart()
    assert node.cache.report().used_bytes == 1250
    node.settle(5)
    assert node.files(item) == FILES
    assert origin.reads == ["a.bin", "sub/b.bin", "sub/b.bin"]


def test_a_partial_file_that_was_damaged_is_fetched_again(node: Node) -> None:
    origin = Origin(FILES)
    origin.fail["sub/b.bin"] = OSError("gone")
    node.opened = origin
    item = want("memory://set")
    node.want(item)
    node.settle()
    staged = Path(node.settings.root) / item.key / "partial/content/a.bin"
    staged.write_bytes(b"x" * 1000)
    origin.fail.clear()
    node.settle(5)
    assert node.files(item) == FILES


def test_an_origin_that_changed_is_fetched_from_the_start(node: Node) -> None:
    """Otherwise the copy would mix two versions."""
    origin = Origin(FILES)
    origin.fail["sub/b.bin"] = OSError("gone")
    node.opened = origin
    item = want("memory://set")
    node.want(item)
    node.settle()
    origin.content = {"a.bin": b"A" * 900, "sub/b.bin": b"B"}
    origin.fail.clear()
    node.settle(5)
    assert node.files(item) == origin.content


@pytest.mark.parametrize(("stated", "reason"), [(999, "became larger"), (1001, "ended after 1000")])
def test_a_file_of_another_size_than_listed_is_not_offered(
    node: Node, stated: int, reason: str
) -> None:
    origin = Origin(FILES)
    origin.stated["a.bin"] = stated
    node.opened = origin
    item = want("memory://set")
    node.want(item)
    node.settle()
    assert reason in node.reason(item)
    assert not node.content(item).exists()


def test_a_full_disk_frees_the_room_and_says_so(node: Node) -> None:
    origin = Origin(FILES)
    origin.fail["sub/b.bin"] = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    node.opened = origin
    item = want("memory://set")
    node.want(item)
    node.settle()
    assert node.reason(item) == "disk full: No space left on device (retried after 5 s)"
    assert node.cache.report().used_bytes == 0


def test_a_library_error_is_a_reason_and_not_the_end_of_the_cache(node: Node) -> None:
    origin = Origin(FILES)
    origin.fail["a.bin"] = KeyError("of a library")
    node.opened = origin
    bad = want("memory://set")
    node.want(bad)
    node.settle()
    assert node.reason(bad) == "KeyError: 'of a library' (retried after 5 s)"


def test_an_empty_origin_is_a_failure(node: Node, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    item = want(f"file://{tmp_path}/empty")
    node.want(item)
    node.settle()
    assert node.reason(item).startswith("the origin has no files")


# --- what must not be read or written -------------------------------------------------------


def test_only_listed_origins_are_read_and_the_reason_names_them(
    tmp_path: Path, source: Path
) -> None:
    node = Node(tmp_path / "cache", allowed_origins=("https://data.example.org/sets",))
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    assert node.state(item) == "Failed"
    assert node.reason(item) == (
        "this node may not read file://: allowed origins are https://data.example.org/sets (an "
        "operator sets allowed_origins of the data cache)"
    )


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//x", ".", "a\nb", ""])
def test_a_path_that_leads_outside_is_not_written(node: Node, path: str) -> None:
    node.opened = Origin({path: b"x"})
    item = want("memory://set")
    node.want(item)
    node.settle()
    assert "the origin lists" in node.reason(item)
    assert not (Path(node.settings.root).parent / "x").exists()


def test_a_symbolic_link_that_leads_out_of_the_allowed_folders_is_not_read(
    tmp_path: Path, source: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    (source / "link").symlink_to(tmp_path / "secret")
    node = Node(tmp_path / "cache", allowed_origins=(f"file://{source}",))
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    assert node.reason(item).startswith(f"a symbolic link leads to {tmp_path}/secret, which")


def test_an_allowed_folder_may_itself_be_a_link(tmp_path: Path, source: Path) -> None:
    (tmp_path / "shared").symlink_to(source)
    node = Node(tmp_path / "cache", allowed_origins=(f"file://{tmp_path}/shared",))
    item = want(f"file://{tmp_path}/shared")
    node.want(item)
    node.settle()
    assert node.files(item) == FILES


def test_only_regular_files_are_read(node: Node, source: Path) -> None:
    """Opening a FIFO would block."""
    os.mkfifo(source / "pipe")
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    assert "pipe is not a regular file" in node.reason(item)


def test_a_link_to_a_folder_is_not_left_out_silently(node: Node, source: Path) -> None:
    (source / "more").symlink_to(source / "sub")
    item = want(f"file://{source}")
    node.want(item)
    node.settle()
    assert "more is a symbolic link to a folder" in node.reason(item)


@pytest.mark.parametrize("key", ["../../etc", "0" * 32])
def test_a_key_that_is_not_of_its_uri_is_refused(node: Node, source: Path, key: str) -> None:
    item = data.WantedCopy(key=key, uri=f"file://{source}")
    node.want(item)
    node.settle()
    assert node.reason(item) == "the key does not belong to this URI and digest"
