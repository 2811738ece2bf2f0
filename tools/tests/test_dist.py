"""Tests of a release: its wheels, charts and bills of materials work without a clone of the
repository."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from stromboli.testkit.parts import tools
from tools import release_version
from tools.dist import __main__ as dist
from tools.dist import charts, wheels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dist")
    wheels.build(path)
    return path


def test_every_package_has_a_wheel_with_all_its_files(folder: Path) -> None:
    """The wheel is built from the source distribution, so a file that is missing there is missing
    here."""
    built = list(folder.glob("*.whl"))
    assert len(built) == len(wheels.packages(wheels.ROOT))
    packed = {name for wheel in built for name in zipfile.ZipFile(wheel).namelist()}
    sources = {
        path.relative_to(wheels.ROOT / member / "src").as_posix()
        for member in wheels.packages(wheels.ROOT)
        for path in (wheels.ROOT / member / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sorted(sources - packed) == []


def test_the_command_line_of_a_wheel_runs_without_the_repository(
    folder: Path, tmp_path: Path
) -> None:
    """``make dist`` also installs the dependencies, for which it needs a package index."""
    uv = wheels.ROOT / ".venv/bin/uv"
    subprocess.run(
        [
            *(uv, "pip", "install", "--quiet", "--no-deps", "--offline", "--target", tmp_path),
            *folder.glob("*.whl"),
        ],
        check=True,
    )
    main = "import stromboli.cli.main as m; print(m.__file__); m.main()"
    printed = subprocess.run(
        [sys.executable, "-c", main, "version", "--server", "http://127.0.0.1:1"],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert Path(printed[0]).is_relative_to(tmp_path)
    assert printed[1].startswith(f"strom {release_version.current()} ")


@pytest.mark.real
@pytest.mark.timeout(600)
def test_the_demo_runs_from_an_installation_of_the_release(folder: Path) -> None:
    """In a new environment and an empty folder, with the locked dependencies."""
    printed = wheels.check(sorted(folder.glob("*.whl")))
    assert printed.startswith(f"strom {release_version.current()} ")


@pytest.mark.real
def test_a_chart_package_renders_what_its_sources_render(
    real_tools: tools.Tools, tmp_path: Path
) -> None:
    """A package contains the subcharts, which are links in the sources."""
    helm = charts.installed_helm(wheels.ROOT)
    assert helm is not None
    packages = charts.package(helm, wheels.ROOT, tmp_path)
    names = {
        yaml.safe_load((each / "Chart.yaml").read_text())["name"]: each
        for each in charts.sources(wheels.ROOT)
    }
    version = release_version.current()
    assert {each.name for each in packages} == {f"{name}-{version}.tgz" for name in names}
    options = ("--set", "global.kafka.trial=true", "--kube-version", "1.34.0")
    package, source = tmp_path / f"stromboli-{version}.tgz", names["stromboli"]
    rendered = [
        subprocess.run(
            [helm, "template", "stromboli", chart, *options],
            capture_output=True,
            check=True,
            cwd=tmp_path,
        ).stdout
        for chart in (package, source)
    ]
    assert rendered[0] == rendered[1]
    assert f"stromboli-admission:{version}" in rendered[0].decode()


def test_the_checksums_list_every_file_of_the_release_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "stromboli_shared-0.1.0.tar.gz").write_bytes(b"one")
    (tmp_path / "stromboli-admission.cdx.json").write_bytes(b"two")
    (tmp_path / "snakemake_executor_plugin_strom-0.1.0.tar.gz").write_bytes(b"four")
    (tmp_path / "notes").write_bytes(b"three")
    assert dist.write_checksums(tmp_path) == 3
    assert (tmp_path / dist.CHECKSUMS).read_text().splitlines() == [
        f"{hashlib.sha256(content).hexdigest()}  {name}"
        for content, name in (
            (b"four", "snakemake_executor_plugin_strom-0.1.0.tar.gz"),
            (b"two", "stromboli-admission.cdx.json"),
            (b"one", "stromboli_shared-0.1.0.tar.gz"),
        )
    ]
    dist.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_packages_and_charts_have_the_release_version() -> None:
    stale = [
        path.name
        for path, text in release_version.outputs().items()
        if path.read_text(encoding="utf-8") != text
    ]
    assert stale == []


def test_a_new_version_is_written_to_packages_charts_and_image_tags(tmp_path: Path) -> None:
    """The chart of the trial broker keeps the version of Kafka."""
    for path in (release_version.ROOT / "pyproject.toml", *release_version.outputs()):
        copy = tmp_path / path.relative_to(release_version.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    root = tmp_path / "pyproject.toml"
    old = release_version.current()
    root.write_text(root.read_text().replace(f'version = "{old}"', 'version = "7.8.9"'))
    written = {
        path.relative_to(tmp_path).as_posix(): text
        for path, text in release_version.outputs(tmp_path).items()
    }
    assert 'version = "7.8.9"' in written["cli/pyproject.toml"]
    chart = yaml.safe_load(written["services/history/chart/Chart.yaml"])
    assert (chart["version"], chart["appVersion"]) == ("7.8.9", "7.8.9")
    assert chart["dependencies"] == [{"name": "common", "version": "7.8.9"}]
    kafka = yaml.safe_load(written["charts/kafka/Chart.yaml"])
    assert kafka["version"] == "7.8.9"
    assert kafka["appVersion"] != "7.8.9"
    assert "stromboli-history:7.8.9" in written["docs/history.md"]
    assert "stromboli-console:7.8.9" in written["docs/console.md"]
    assert "stromboli-monitor-7.8.9.tgz" in written["docs/install.md"]
    assert not any(f"stromboli-history:{old}" in text for text in written.values())
