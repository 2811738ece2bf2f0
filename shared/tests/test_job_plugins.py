"""Plugins of other packages: found by their entry point, as docs/job-plugins.md promises."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stromboli.shared.api import kinds
from stromboli.shared.jobspec import job_plugins
from stromboli.testkit.builders import make_job, make_task

DOCUMENT = (Path(__file__).parents[2] / "docs/job-plugins.md").read_text()


def install(folder: Path, name: str, value: str, source: str) -> None:
    """A package as pip leaves it: a module and its metadata."""
    (folder / "their_package.py").write_text(source)
    metadata = folder / "their_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    points = f"[{job_plugins.ENTRY_POINTS}]\n{name} = {value}\n"
    (metadata / "entry_points.txt").write_text(points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that packages are installed into."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("their_package", None)


def test_the_documented_plugin_is_found_and_works(site: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    install(site, "licence", "their_package:Licence", source)
    plugins = job_plugins.load()
    assert list(plugins) == [*job_plugins.BUILT_IN, "licence"]
    licence = plugins["licence"]
    assert licence.problem(["--seats=0"]) == "seats: at least 1"
    ignored = "--sets=2: unknown, so ignored; known arguments: seats, server"
    assert (licence.problem(["--sets=2"]), licence.warning(["--sets=2"])) == ("", ignored)
    job = make_job(tasks=[make_task(replicas=3)])
    (plugin_object,) = licence.objects(job, ["--seats=2"])
    assert (plugin_object.kind, plugin_object.name) == (kinds.CONFIG_MAPS, "j1-licence")
    assert plugin_object.content == {"data": {"seats": "6"}}
    task = job.spec.tasks[0]
    pod: job_plugins.Pod = {"metadata": {}, "spec": msgspec.json.decode(task.template.spec)}
    licence.mutate_pod(pod, job, task, 0, [])
    env = [{"name": "LICENCE", "value": "licences:27000"}]
    assert pod["spec"]["containers"][0]["env"] == env


def test_an_entry_point_without_a_plugin_stops_the_start(site: Path) -> None:
    install(site, "licence", "their_package:Licence", "class Licence: pass\n")
    with pytest.raises(TypeError, match=r"entry point licence .* does not derive from"):
        job_plugins.load()


def test_names_of_built_in_plugins_are_reserved(site: Path) -> None:
    source = "from stromboli.shared.jobspec.job_plugins import Plugin as Svc\n"
    install(site, "svc", "their_package:Svc", source)
    with pytest.raises(ValueError, match="has the name of a built-in plugin"):
        job_plugins.load()


def test_every_built_in_plugin_is_documented_with_all_its_arguments() -> None:
    for name, plugin in job_plugins.BUILT_IN.items():
        (row,) = re.findall(rf"^\| `{name}` \|.*$", DOCUMENT, re.MULTILINE)
        assert [it for it in plugin.defaults if f"`{it}`" not in row] == []
