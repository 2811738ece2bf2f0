"""Every code block of our pages is right: it runs, is admitted, or at least can be read."""

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import typer
from typer.core import TyperGroup

from stromboli.cli import main
from stromboli.cli.lazy import Group, LazyCommand
from stromboli.client import server as addresses
from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader
from stromboli.shared.api import kinds
from stromboli.shared.formats import documents
from tests.docs import blocks
from tests.docs.blocks import Block
from tests.e2e import conftest

LANGUAGES = {"", "sh", "console", "yaml", "json", "python", "toml", "ini", "mermaid"}
OTHER_PROJECTS_GROUPS = "own-nodes"
"""The scheduler plugin of docs/plugins.md."""
OUR_GROUPS = {(kind.api_version, kind.kind) for kind in kinds.SUBMITTED}
DIRECTIVES = {"{toctree}", "{include}", "{literalinclude}"}
"""Read by the site builder, which reports errors in them."""


def named(found: list[Block]) -> list[Any]:
    return [pytest.param(block, id=block.title) for block in found]


def test_every_block_is_in_a_language_that_is_checked() -> None:
    unknown = {
        block.title: block.language
        for page in blocks.PAGES
        for block in blocks.of_page(page)
        if block.language not in LANGUAGES | DIRECTIVES
    }
    assert unknown == {}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("blocks")
    with (
        conftest.embedded(folder, "--nodes", "1") as running,
        httpx.Client(**addresses.httpx_options(running.url, 30)) as client,
    ):
        yield client


@pytest.mark.parametrize("block", named(blocks.everywhere("yaml")))
def test_yaml_is_admitted_if_it_is_a_manifest_and_read_if_it_is_a_part(
    block: Block, server: httpx.Client
) -> None:
    found = [document for document, _ in documents.read(block.text)]
    assert found
    objects = [each for each in found if (each.get("apiVersion"), each.get("kind")) in OUR_GROUPS]
    if objects:
        answer = server.post("/v1/check", json={"objects": objects})
        is_refused = "refused" in block.text.partition("\n")[0]
        assert answer.is_success is not is_refused, answer.text
    for document in found:
        if "actions" in document:
            config_reader.read_configuration(
                document, actions.NAMES, {*plugins.NAMES, OTHER_PROJECTS_GROUPS}
            )


@pytest.mark.parametrize("block", named(blocks.everywhere("json", "toml", "ini", "python")))
def test_json_toml_ini_and_python_can_be_read(block: Block) -> None:
    match block.language:
        case "json":
            json.loads(block.text)
        case "ini":
            configparser.ConfigParser().read_string(block.text)
        case "toml":
            tomllib.loads(block.text)
        case _:
            compile(block.text, block.title, "exec")


def shown() -> list[Any]:
    return [
        pytest.param(command, id=f"{block.title}-{command}")
        for block in blocks.everywhere("", "sh", "console")
        for command in blocks.commands(block)
    ]


@pytest.mark.parametrize("command", shown())
def test_a_documented_command_exists_with_its_options(command: str) -> None:
    words = shlex.split(command.removesuffix("\\"), comments=True)[1:]
    found: Any = typer.main.get_command(main.app)
    context = typer.Context(found, info_name="strom")
    while isinstance(found, TyperGroup):
        words = found.join_name(words) if isinstance(found, Group) else words
        inner = found.get_command(context, words[0])
        assert inner is not None, f"there is no {words[0]}"
        found = inner.load(None) if isinstance(inner, LazyCommand) else inner
        words = words[1:]
    known = {
        name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in words:
        if word in ("--", "&", "|", ">", "<<"):
            break
        if word.startswith("-") and len(word) > 1:
            assert word.partition("=")[0] in known | {"--help"}


def test_the_page_about_scheduling_names_every_plugin_and_action() -> None:
    text = (blocks.ROOT / "docs/scheduling.md").read_text()
    named = set(re.findall(r"[`*]([a-z-]+)[`*]", text))
    assert sorted({*plugins.NAMES, *actions.NAMES} - named) == []
    table = {
        name
        for line in text.splitlines()
        if line.startswith("|")
        for name in re.findall(r"`([a-z-]+)`", line)
    }
    assert sorted(table - set(plugins.NAMES)) == []


def test_the_page_of_examples_has_all_of_them() -> None:
    text = (blocks.ROOT / "docs/examples.md").read_text()
    there = {path.name for path in (blocks.ROOT / "examples").iterdir() if path.is_file()}
    assert sorted(there - set(re.findall(r"\.\./examples/([a-z_]+\.[a-z]+)", text))) == []
