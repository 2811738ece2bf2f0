"""The installer of the real parts: versions, pins, digests, and a cache that is whole or absent."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tools.real import binaries, cache, jars, kubelets, pin_jars, toolchains
from tools.real.errors import InstallError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', (17, 0, 15)),
        ('java version "1.8.0_402"', (8, 0)),
        ('openjdk version "25" 2025-09-16', (25,)),
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.24 darwin/arm64", (1, 24)),
        ("The operation couldn't be completed.", None),
    ],
)
def test_a_tools_version_is_read_from_its_answer(
    answer: str, version: tuple[int, ...] | None
) -> None:
    """Java and Go answer in several shapes."""
    assert toolchains.parse_version(answer) == version


def test_a_tool_that_is_too_old_is_not_used(tmp_path: Path) -> None:
    """The version of the wheel's program is checked like that of a program on PATH."""
    program = tmp_path / "lib" / "python3.11" / "site-packages" / "go" / "bin" / "go"
    program.parent.mkdir(parents=True)
    newest = toolchains.Toolchain("Go", "no-such-go", ("version",), (1, 24), "", "go/bin/go", 0)
    for version, found in (("1.23.9", None), ("1.24.0", str(program))):
        program.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
        program.chmod(0o755)
        assert toolchains.find(newest, tmp_path) == found


@pytest.mark.parametrize("tool", [toolchains.JAVA, toolchains.GO], ids=lambda tool: tool.name)
def test_each_wheel_is_pinned_with_hashes(tool: toolchains.Toolchain) -> None:
    """Each can be installed alone from the lock of the real parts."""
    block = toolchains.pinned_block((ROOT / "requirements-real.txt").read_text(), tool.wheel)
    assert block.count("==") == 1
    assert "--hash=sha256:" in block


def test_the_pinned_kafka_is_the_one_of_the_pom() -> None:
    """jars.txt was written again after the last change of pom.xml."""
    pins = jars.parse_pins((ROOT / "tools" / "kafka" / "jars.txt").read_text())
    pom = (ROOT / "tools" / "kafka" / "pom.xml").read_text()
    wanted = re.findall(r"<artifactId>(\S+)</artifactId>\s*<version>([\d.]+)</version>", pom)
    assert len(wanted) == 3  # the pom's own, the broker, the logger
    assert {(jar.artifact, jar.version) for jar in pins} >= set(wanted[1:])


def test_a_line_without_a_pin_is_reported() -> None:
    """A damaged list stops the installation and the error names the line."""
    with pytest.raises(InstallError, match="line 2"):
        jars.parse_pins("# a comment\norg.example:thing:1.0 not-a-digest\n")


def test_mavens_listing_is_read() -> None:
    """Module notes and the heading are not jars."""
    listing = (
        "\nThe following files have been resolved:\n"
        "   org.b:two:jar:1.0-2:runtime -- module two (auto)\n   org.a:one_2.13:jar:4.3.0:compile\n"
    )
    assert pin_jars.resolved(listing) == [("org.a", "one_2.13", "4.3.0"), ("org.b", "two", "1.0-2")]


THING = jars.Jar("org.example", "thing", "1.0", hashlib.sha256(b"bytes").hexdigest())


def test_jars_must_be_exactly_the_pinned_ones(tmp_path: Path) -> None:
    """Missing, altered and additional jars are each refused by name."""
    with pytest.raises(InstallError, match=r"missing.*thing-1\.0\.jar"):
        jars.verify(tmp_path, [THING])
    (tmp_path / "thing-1.0.jar").write_bytes(b"other bytes")
    with pytest.raises(InstallError, match=r"thing-1\.0\.jar does not have the pinned digest"):
        jars.verify(tmp_path, [THING])
    (tmp_path / "thing-1.0.jar").write_bytes(b"bytes")
    jars.verify(tmp_path, [THING])
    (tmp_path / "stowaway.jar").write_bytes(b"")
    with pytest.raises(InstallError, match=r"does not pin: stowaway\.jar"):
        jars.verify(tmp_path, [THING])


def test_without_maven_jars_are_downloaded_from_the_configured_repository(tmp_path: Path) -> None:
    """They have the layout of every Maven repository; the error names a missing one."""
    source, libs = tmp_path / "org" / "example" / "thing" / "1.0", tmp_path / "libs"
    source.mkdir(parents=True)
    libs.mkdir()
    (source / "thing-1.0.jar").write_bytes(b"bytes")
    jars.download(tmp_path.as_uri(), libs, (THING,))
    jars.verify(libs, [THING])
    absent = jars.Jar("org.example", "absent", "1.0", "0" * 64)
    with pytest.raises(InstallError, match=r"absent-1\.0\.jar.*MAVEN_REPO_URL"):
        jars.download(tmp_path.as_uri(), libs, (absent,))


MIRROR = "<mirror><mirrorOf>{of}</mirrorOf><url>https://{host}.test/maven/</url>{more}</mirror>"
PROFILE = "<repository><id>r</id><url>https://${env.HOST}.test/r</url></repository>"


@pytest.mark.parametrize(
    ("content", "url"),
    [
        (MIRROR.format(of="central", host="m", more=""), "https://m.test/maven"),
        (MIRROR.format(of="*,!inner", host="all", more=""), "https://all.test/maven"),
        (MIRROR.format(of="inner", host="m", more=""), None),
        (MIRROR.format(of="*", host="m", more="<blocked>true</blocked>"), None),
        (PROFILE, "https://named.test/r"),
        (PROFILE + MIRROR.format(of="central", host="m", more=""), "https://m.test/maven"),
        ("", None),
    ],
    ids=["central", "all", "of another", "blocked", "repository", "mirror first", "nothing"],
)
def test_the_repository_is_what_mavens_settings_name(
    tmp_path: Path, content: str, url: str | None
) -> None:
    """A mirror of central wins over a repository; nothing is ever assumed."""
    settings = tmp_path / "settings.xml"
    namespace = "http://maven.apache.org/SETTINGS/1.0.0"
    settings.write_text(f'<settings xmlns="{namespace}">{content}</settings>')
    assert jars.repository_url({"HOST": "named"}, settings) == url
    named = {"MAVEN_REPO_URL": "https://mine.test/"}
    assert jars.repository_url(named, settings) == "https://mine.test"


def test_the_cache_is_where_the_user_wants_it() -> None:
    """STROM_CACHE, else the cache directory of the desktop's convention."""
    root = cache.shared_root
    assert root({"STROM_CACHE": "/big", "XDG_CACHE_HOME": "/x"}) == Path("/big/real")
    assert root({"XDG_CACHE_HOME": "/x"}) == Path("/x/stromboli/real")
    assert root({}) == Path("~/.cache/stromboli/real").expanduser()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the files that make the recipe."""
    for name in cache.RECIPE_FILES:
        (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "clone" / name)
    return tmp_path / "clone"


def test_clones_with_the_same_recipe_share_a_directory(clone: Path) -> None:
    """The path of the working tree does not matter."""
    assert cache.recipe_digest(clone) == cache.recipe_digest(ROOT)


@pytest.mark.parametrize("name", cache.RECIPE_FILES)
def test_each_file_of_the_recipe_changes_the_directory(clone: Path, name: str) -> None:
    """A new version never meets an old installation."""
    with (clone / name).open("a") as file:
        file.write("\n")
    assert cache.recipe_digest(clone) != cache.recipe_digest(ROOT)


def fill_and_fail(place: Path) -> None:
    with cache.staged(place, {}) as stage:
        (stage / "bin").mkdir()
        raise InstallError("the network went away")


def test_an_installation_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """An error in the middle leaves nothing; the next attempt also clears what a kill left."""
    place = tmp_path / "key"
    leftover = tmp_path / ".key.part-killed"
    leftover.mkdir()
    with pytest.raises(InstallError):
        fill_and_fail(place)
    assert list(tmp_path.iterdir()) == []
    with cache.staged(place, {"jars": []}) as stage:
        (stage / "bin").mkdir()
        assert not cache.is_installed(place)
    assert cache.is_installed(place)
    assert {path.name for path in place.iterdir()} == {"bin", "parts.json"}


def test_two_clones_do_not_install_concurrently(tmp_path: Path) -> None:
    """The second waits for the first and reports that it waited."""
    place, order = tmp_path / "key", []

    def second() -> None:
        with cache.sole_installer(place) as alone:
            order.append(("second", alone))

    thread = threading.Thread(target=second)
    with cache.sole_installer(place) as alone:
        thread.start()
        order.append(("first", alone))
        thread.join(timeout=0.2)
        assert thread.is_alive()
    thread.join()
    assert order == [("first", True), ("second", False)]


def test_programs_name_the_version_of_their_module() -> None:
    """Clients read gitVersion; a plain build would claim v0.0.0."""
    version = binaries.required_version((ROOT / "tools/go/go.mod").read_text(), "k8s.io/kubernetes")
    assert version.startswith("v1.34.")
    assert f"version.gitVersion={version}" in binaries.kubernetes_flags(version)
    assert "version.gitMinor=34" in binaries.kubernetes_flags(version)
    with pytest.raises(InstallError, match=r"example\.org/absent"):
        binaries.required_version("module x\n", "example.org/absent")


def test_helm_reports_the_kubernetes_version_of_its_libraries() -> None:
    """A plain build assumes Kubernetes 1.20 for a cluster that it does not query."""
    flags = binaries.helm_flags((ROOT / "tools/go/helm/go.mod").read_text())
    assert "version.version=v3." in flags
    assert flags.count("k8sVersionMinor=34") == flags.count("k8sVersionMajor=1") == 2


def test_go_builds_for_this_machine_whatever_the_user_has_set() -> None:
    """Proxies and caches of the user hold; a cross compilation or toolchain download does not."""
    env = binaries.go_environment({"GOOS": "plan9", "GOPROXY": "x", "GOTOOLCHAIN": "auto"})
    assert env == {
        "GOPROXY": "x",
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def test_a_failed_build_is_explained_by_one_line() -> None:
    """Package names and downloads around it are no reasons."""
    lines = [
        "go: downloading k8s.io/api v0.34.4",
        "k8s.io/api/core/v1",
        "go: k8s.io/api@v0.34.4: verifying module: checksum mismatch",
        "k8s.io/api/apps/v1",
    ]
    assert "checksum mismatch" in binaries.failure(lines)
    assert binaries.failure([]) == "no message"


def test_missing_real_parts_are_reported_with_the_next_step(tmp_path: Path) -> None:
    """`--where` exits 3 and names the command."""
    requested = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "real" / "install.py"), "--where"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "STROM_CACHE": str(tmp_path)},
        timeout=60,
    )
    assert requested.returncode == 3
    assert requested.stderr == "the real parts are not installed: run `make real-tools`\n"
    assert list(tmp_path.iterdir()) == []


def test_the_kubelet_has_the_version_of_the_api_server() -> None:
    """They are two modules, so that `make real-tools` builds no kubelet."""
    server, kubelet = (
        binaries.required_version((ROOT / module / "go.mod").read_text(), "k8s.io/kubernetes")
        for module in (kubelets.MODULES, kubelets.MODULES / "kubelet")
    )
    assert kubelet == server


@pytest.mark.parametrize("name", sorted(kubelets.BUILT))
def test_programs_of_kubelets_are_built_of_pinned_releases(name: str) -> None:
    module = ROOT / kubelets.MODULES / name
    release = binaries.required_version((module / "go.mod").read_text(), kubelets.BUILT[name])
    assert f"{kubelets.BUILT[name]} {release} h1:" in (module / "go.sum").read_text()


def test_missing_tools_of_kubelets_are_listed_by_package() -> None:
    found = dict.fromkeys([*kubelets.PROGRAMS, "cni"], "/somewhere") | {"runc": None, "cni": None}
    assert kubelets.missing_packages(found) == ["containernetworking-plugins", "runc"]


def test_a_busybox_with_a_dynamic_loader_is_not_used(tmp_path: Path) -> None:
    """It would be the only file of its image."""
    program = tmp_path / "busybox"
    program.write_bytes(b"\x7fELF" + b"/lib64/ld-linux-x86-64.so.2")
    assert not kubelets.is_static(program)
    program.write_bytes(b"\x7fELF" + b"no loader")
    assert kubelets.is_static(program)
