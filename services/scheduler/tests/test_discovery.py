"""Plugins of other distributions, installed as in docs/plugins.md."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler import configuration_file, discovery
from stromboli.scheduler.core import simulate
from stromboli.testkit import builders

PAGE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()


def block(language: str) -> str:
    """The page's one example in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def install(folder: Path, name: str, *entries: str) -> None:
    """A distribution, as an installer leaves it."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{discovery.ENTRY_POINTS}]", *entries, ""]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_nodes", raising=False)
    return tmp_path


def test_the_plugin_of_the_documentation_runs(folder: Path) -> None:
    """Its code, its entry point and its configuration, installed as a distribution."""
    (folder / "own_nodes.py").write_text(block("python"))
    install(folder, "own-nodes", block("toml").splitlines()[1].replace('"', ""))
    registry = discovery.discover_plugins()
    loaded = configuration_file.parse(block("yaml"), "c.yaml", registry)
    assert loaded.warnings == ()
    cluster = sessions.given(
        [
            builders.make_queue(),
            builders.make_node("free"),
            builders.make_node("taken", labels={"example.com/for": "others"}),
            *default_sessions.gang("g", 3),
        ]
    )
    closed = simulate.run(loaded.configuration, cluster, registry.find)
    assert set(default_sessions.binds(closed).values()) == {"free"}
    assert closed.failures == {}


def test_an_argument_that_the_plugin_does_not_read_causes_a_warning(folder: Path) -> None:
    (folder / "own_nodes.py").write_text(block("python"))
    install(folder, "own-nodes", "own-nodes = own_nodes:Plugin")
    text = block("yaml").replace("{label:", "{lable:")
    (warning,) = configuration_file.parse(text, "c.yaml", discovery.discover_plugins()).warnings
    assert warning.startswith("c.yaml:7: ")
    assert warning.endswith("did you mean label?")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("gang",), "the plugin gang is in stromboli-scheduler and in first"),
        (("a", "a"), "the plugin a is in "),
    ],
)
def test_two_plugins_of_one_name_are_an_error(
    folder: Path, names: tuple[str, ...], why: str
) -> None:
    """Otherwise the order of installation would decide."""
    for distribution, name in zip(("first", "second"), names, strict=False):
        install(folder, distribution, f"{name} = own_nodes:Plugin")
    with pytest.raises(discovery.DiscoveryError, match=why):
        discovery.discover_plugins(metadata.entry_points(group=discovery.ENTRY_POINTS))


def test_an_import_error_is_an_error_of_the_configuration(folder: Path) -> None:
    """Other plugins are not affected."""
    install(folder, "own-nodes", "own-nodes = own_nodes:Plugin")
    registry = discovery.discover_plugins()
    with pytest.raises(configuration_file.ConfigurationFileError) as caught:
        configuration_file.parse(block("yaml"), "c.yaml", registry)
    (line,) = caught.value.lines
    assert line.startswith(
        "c.yaml:6: tiers[0].plugins[2]: the plugin cannot be used: own_nodes:Plugin of "
    )
    assert "ModuleNotFoundError" in line
    assert configuration_file.load_default(registry).warnings == ()
