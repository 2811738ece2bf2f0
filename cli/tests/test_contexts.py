"""Rules of contexts: the server, its credentials and the namespace of a user."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from stromboli.cli import contexts, server
from stromboli.cli.errors import CommandError


@pytest.fixture
def in_context(api_server: Any, strom: Any) -> Any:
    """``strom`` that knows its server from a context only."""

    def call(*arguments: str, **options: Any) -> Any:
        env = {"STROM_SERVER": None, "STROM_TOKEN": None, "STROM_TOKEN_FILE": None}
        return strom(*arguments, env=env | options.pop("env", {}), **options)

    call("context", "set", "test", "--server", api_server.url, "--namespace", "vision")
    return call


def test_the_first_context_is_selected_and_gives_server_and_namespace(
    api_server: Any, in_context: Any, tmp_path: Path
) -> None:
    api_server.create_namespace("vision")
    file = tmp_path / "config" / "stromboli" / "contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert in_context("job", "run", "a").exit_code == 0
    assert api_server.job("a", "vision").metadata.name == "a"
    assert in_context("job", "list", "-o", "name").stdout.endswith("/a\n")
    assert in_context("job", "list", "-n", "default", "-o", "name").stdout == ""
    shown = in_context("whoami").stdout
    assert ("vision" in shown, "from context test" in shown) == (True, True)


def test_apply_uses_the_namespace_of_the_context_for_manifests_without_one(
    api_server: Any, in_context: Any, tmp_path: Path
) -> None:
    api_server.create_namespace("vision")
    manifest = tmp_path / "m.yaml"
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m%s}\n---\n"
    manifest.write_text(head % "" + head % ", namespace: default")
    applied = in_context("apply", "-f", str(manifest))
    assert applied.exit_code == 0, applied.stderr


def test_use_selects_and_delete_removes_a_context(in_context: Any) -> None:
    in_context("context", "set", "other", "--server", "http://127.0.0.1:1")
    rows = in_context("context", "list").stdout.splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [["-", "other"], ["*", "test"]]
    assert in_context("context", "use", "other").exit_code == 0
    assert in_context("job", "list").exit_code == 3
    assert in_context("job", "list", env={"STROM_CONTEXT": "test"}).exit_code == 0
    assert in_context("context", "use", "absent").exit_code == 1
    assert in_context("context", "delete", "other").exit_code == 0
    assert "other" not in in_context("context", "list").stdout


@pytest.mark.parametrize("name", ["../x", "a/b", ".x"])
def test_the_name_of_a_context_is_no_path(in_context: Any, name: str) -> None:
    assert in_context("context", "set", name, "--server", "http://127.0.0.1:1").exit_code == 2


def test_login_stores_a_token_for_its_owner_only(in_context: Any, tmp_path: Path) -> None:
    done = in_context("login", "test", stdin="secret-token\n")
    assert done.exit_code == 0, done.stderr
    token = tmp_path / "config" / "stromboli" / "tokens" / "test"
    assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == ("secret-token", 0o600)
    config = (tmp_path / "config" / "stromboli" / "contexts.json").read_text()
    assert "secret-token" not in config
    assert in_context("context", "delete", "test").exit_code == 0
    assert not token.exists()


def test_a_token_that_cannot_be_checked_is_not_stored(in_context: Any, tmp_path: Path) -> None:
    failed = in_context("login", "far", "--server", "http://127.0.0.1:1", stdin="t")
    assert failed.exit_code == 3
    assert not list((tmp_path / "config" / "stromboli" / "tokens").iterdir())
    assert in_context("login", "test", stdin="").exit_code == 1


def test_the_token_of_a_context_is_for_its_server_only(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    context = contexts.Context("https://a.example", token_file="/t")
    contexts.save(environment, contexts.Contexts("a", {"a": context}))
    assert server.address(None, environment, tmp_path).token_file == "/t"
    assert server.address("https://b.example", environment, tmp_path).token_file == ""
    assert server.address(None, {**environment, "STROM_SERVER": "https://b.example"}, tmp_path) == (
        server.Address("https://b.example", "from STROM_SERVER")
    )


def test_an_invalid_file_or_a_missing_context_is_an_error(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "STROM_CONTEXT": "absent"}
    with pytest.raises(CommandError, match="known contexts: none"):
        contexts.current(environment)
    file = contexts.folder(environment) / contexts.FILE
    file.parent.mkdir()
    file.write_text(json.dumps({"contexts": 3}))
    with pytest.raises(CommandError, match="it is not a contexts file"):
        contexts.current(environment)
