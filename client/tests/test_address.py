"""Rules of which server is meant."""

from pathlib import Path

import msgspec
import pytest

from stromboli.client import AsyncClient, Client, address, contexts, errors


@pytest.fixture
def everything(tmp_path: Path) -> dict[str, str]:
    """An environment in which every source names a server of its own."""
    config = tmp_path / "config" / "stromboli" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("server: http://config:1\n")
    remembered = tmp_path / ".strom" / "server"
    remembered.parent.mkdir()
    remembered.write_text("http://localhost:1\n")
    return {"STROM_SERVER": "http://variable:1/", "XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_the_flag_comes_before_the_variable_the_file_the_memory_and_the_default(
    everything: dict[str, str], tmp_path: Path
) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    def url(flag: str | None = None) -> str:
        return address.find(flag, everything, below).url

    assert url("https://flag:1") == "https://flag:1"
    assert url() == "http://variable:1"
    del everything["STROM_SERVER"]
    assert url() == "http://config:1"
    everything["XDG_CONFIG_HOME"] = str(tmp_path / "absent")
    assert url() == "http://localhost:1"
    (tmp_path / ".strom" / "server").unlink()
    assert url() == address.DEFAULT_URL


def test_every_address_has_its_origin(everything: dict[str, str], tmp_path: Path) -> None:
    def origin(flag: str | None = None) -> str:
        return address.find(flag, everything, tmp_path).origin

    assert origin("http://flag:1") == "from the argument url"
    assert origin() == "from STROM_SERVER"
    del everything["STROM_SERVER"]
    assert origin() == f"from {tmp_path}/config/stromboli/config.yaml"
    everything["XDG_CONFIG_HOME"] = str(tmp_path / "absent")
    assert origin() == f"stored by strom up in {tmp_path}/.strom/server"


def test_the_configuration_is_in_the_home_directory_or_that_of_xdg() -> None:
    assert address.config_file({"HOME": "/home/ada"}) == Path(
        "/home/ada/.config/stromboli/config.yaml"
    )


@pytest.mark.parametrize("url", ["localhost:8480", "ftp://a", "http://", "/tmp/socket"])
def test_an_invalid_url_is_rejected_with_its_origin(url: str, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"not a URL \(from STROM_SERVER"):
        address.find(None, {"STROM_SERVER": url}, tmp_path)


@pytest.mark.parametrize("text", ["port: 1\n", "server: 1\n", "server: a\n---\nserver: b\n"])
def test_a_configuration_with_anything_else_in_it_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "stromboli").mkdir()
    (tmp_path / "stromboli" / "config.yaml").write_text(text)
    with pytest.raises(errors.SettingError, match="the file may have one key only, server"):
        address.find(None, {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path)


def test_an_empty_configuration_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "stromboli").mkdir()
    (tmp_path / "stromboli" / "config.yaml").write_text("# nothing yet\n")
    found = address.find(None, {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path)
    assert found.url == address.DEFAULT_URL


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://127.0.0.1:1", True), ("http://[::1]:1", True), ("http://a", False)],
)
def test_loopback_is_distinguished_from_other_hosts(url: str, expected: bool) -> None:
    assert address.Address(url, "").is_loopback is expected


def test_a_directory_cannot_lead_to_another_machine(tmp_path: Path) -> None:
    """The owner of the directory could otherwise obtain the token."""
    remembered = tmp_path / ".strom" / "server"
    remembered.parent.mkdir()
    remembered.write_text("https://elsewhere.example:1\n")
    with pytest.raises(errors.SettingError, match="may contain only an address of this machine"):
        address.find(None, {"XDG_CONFIG_HOME": str(tmp_path / "absent")}, tmp_path)


@pytest.mark.parametrize("connect", [Client, AsyncClient])
def test_programs_use_the_server_and_credentials_that_strom_uses(
    connect: type[Client] | type[AsyncClient],
    everything: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("STROM_SERVER", "STROM_TOKEN", "STROM_TOKEN_FILE", contexts.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "absent"))
    monkeypatch.chdir(tmp_path)
    assert connect().url == "http://localhost:1"
    monkeypatch.setenv("XDG_CONFIG_HOME", everything["XDG_CONFIG_HOME"])
    assert connect().url == "http://config:1"
    context = contexts.Context("https://context:1", token_file="/absent/token")
    (tmp_path / "config" / "stromboli" / "contexts.json").write_bytes(
        msgspec.json.encode(contexts.Contexts("a", {"a": context}))
    )
    assert (connect().url, connect().address.token_file) == ("https://context:1", "/absent/token")
    monkeypatch.setenv("STROM_SERVER", everything["STROM_SERVER"])
    assert (connect().url, connect().address.token_file) == ("http://variable:1", "")
    assert connect("http://given:1").url == "http://given:1"


def test_the_token_file_of_a_context_is_sent_unless_the_program_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STROM_TOKEN", raising=False)
    monkeypatch.delenv("STROM_TOKEN_FILE", raising=False)
    there = address.Address("http://127.0.0.1:9", "from context a", token_file="/absent/token")
    with Client(there) as client, pytest.raises(errors.UnreadableFileError, match="/absent/token"):
        client.job("a")
    with Client(there, token="own") as client, pytest.raises(errors.UnreachableError):
        client.job("a")


def test_an_unreachable_server_is_named_with_the_source_of_its_url_and_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STROM_SERVER", "http://127.0.0.1:9")
    with Client() as client, pytest.raises(errors.UnreachableError) as raised:
        client.job("a")
    expected = "server http://127.0.0.1:9 (from STROM_SERVER): Connection refused"
    assert str(raised.value) == f"{expected}; next: start one with: strom up"
