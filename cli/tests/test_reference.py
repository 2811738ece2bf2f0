"""Rules of help texts, of the reference made from them, and of what the shell completes."""

import sys
from typing import Any

import pytest
import typer

from stromboli.cli import main, reference


def commands() -> list[Any]:
    root = typer.main.get_command(main.app)
    found = list(reference._commands(root, typer.Context(root, info_name="strom")))
    return [pytest.param(command, context, id=path) for path, command, context in found]


@pytest.mark.parametrize(("command", "context"), commands())
def test_every_command_and_option_has_a_help_text(command: Any, context: Any) -> None:
    assert command.help
    silent = [
        parameter.name
        for parameter in command.get_params(context)
        if not getattr(parameter, "hidden", False) and not getattr(parameter, "help", None)
    ]
    assert silent == []


def test_the_reference_matches_the_code() -> None:
    """Else run: python -m stromboli.cli.reference"""
    assert reference.FILE.read_text(encoding="utf-8") == reference.render_reference()


def test_the_reference_does_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = reference.render_reference()
    for name, value in (("COLUMNS", "30"), ("STROM_NAMESPACE", "x"), ("STROM_SERVER", "http://a")):
        monkeypatch.setenv(name, value)
    assert reference.render_reference() == before


def completed(strom: Any, words: str, **env: str) -> list[str]:
    requested = {
        "_STROM_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    return str(strom(env={**requested, **env}).stdout).split()


def test_the_shell_completes_names_of_jobs_and_queues(api_server: Any, strom: Any) -> None:
    strom("queue", "create", "research")
    for name in ("train-1", "train-2", "other"):
        strom("job", "run", name)
    api_server.create_namespace("mine")
    strom("job", "run", "train-3", "-n", "mine")
    assert completed(strom, "strom job get tr") == ["train-1", "train-2"]
    assert completed(strom, "strom job logs -n mine tr") == ["train-3"]
    assert completed(strom, "strom queue get r") == ["research", "root"]
    assert completed(strom, "strom job run --queue d") == ["default"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jo",), "job\n:4\n"),
        (("job", "rest"), "restart\n:4\n"),
        (("job", "view", "tr"), "train\n:4\n"),
        (("queue", "get", ""), "default\nroot\n:4\n"),
    ],
)
def test_kubectl_gets_completions(
    api_server: Any,
    strom: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    strom("job", "run", "train")
    for name in ("_STROM_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")  # so that they are as before afterwards
    monkeypatch.setenv("STROM_SERVER", api_server.url)
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-strom", *words])
    with pytest.raises(SystemExit):
        main.complete_plugin()
    assert capsys.readouterr().out == said


def test_the_shell_completes_nothing_where_no_server_answers(strom: Any) -> None:
    assert completed(strom, "strom job get tr", STROM_SERVER="http://127.0.0.1:1") == []
    assert completed(strom, "strom job get tr", STROM_SERVER="nonsense") == []


def test_types_are_shown_in_the_words_of_users() -> None:
    """``<int range>`` and ``<list[str]>`` are words of Python; choices are listed."""
    text = reference.render_reference()
    for word in ("<int", "<float", "<str>", "list[", "<path>"):
        assert word not in text
    assert "--replicas N`" in text
    assert "<table\\|json" in text
