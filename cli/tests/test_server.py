"""Rules of which server is meant."""

from pathlib import Path

import pytest

from stromboli.cli import server
from stromboli.cli.errors import CommandError


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
        return server.address(flag, everything, below).url

    assert url("https://flag:1") == "https://flag:1"
    assert url() == "http://variable:1"
    del everything["STROM_SERVER"]
    assert url() == "http://config:1"
    everything["XDG_CONFIG_HOME"] = str(tmp_path / "absent")
    assert url() == "http://localhost:1"
    (tmp_path / ".strom" / "server").unlink()
    assert url() == server.DEFAULT_URL


def test_every_address_has_its_origin(everything: dict[str, str], tmp_path: Path) -> None:
    def origin(flag: str | None = None) -> str:
        return server.address(flag, everything, tmp_path).origin

    assert origin("http://flag:1") == "from --server"
    assert origin() == "from STROM_SERVER"
    del everything["STROM_SERVER"]
    assert origin() == f"from {tmp_path}/config/stromboli/config.yaml"
    everything["XDG_CONFIG_HOME"] = str(tmp_path / "absent")
    assert origin() == f"stored by strom up in {tmp_path}/.strom/server"


def test_the_configuration_is_in_the_home_directory_or_that_of_xdg() -> None:
    assert server.config_file({"HOME": "/home/ada"}) == Path(
        "/home/ada/.config/stromboli/config.yaml"
    )


@pytest.mark.parametrize("url", ["localhost:8480", "ftp://a", "http://", "/tmp/socket"])
def test_an_invalid_url_is_rejected_with_its_origin(url: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"not a URL \(from STROM_SERVER"):
        server.address(None, {"STROM_SERVER": url}, tmp_path)


@pytest.mark.parametrize("text", ["port: 1\n", "server: 1\n", "server: a\n---\nserver: b\n"])
def test_a_configuration_with_anything_else_in_it_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "stromboli").mkdir()
    (tmp_path / "stromboli" / "config.yaml").write_text(text)
    with pytest.raises(CommandError, match="the file may have one key only, server"):
        server.address(None, {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path)


def test_an_empty_configuration_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "stromboli").mkdir()
    (tmp_path / "stromboli" / "config.yaml").write_text("# nothing yet\n")
    found = server.address(None, {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path)
    assert found.url == server.DEFAULT_URL


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://127.0.0.1:1", True), ("http://[::1]:1", True), ("http://a", False)],
)
def test_loopback_is_distinguished_from_other_hosts(url: str, expected: bool) -> None:
    assert server.Address(url, "").is_loopback is expected


def test_a_directory_cannot_lead_to_another_machine(tmp_path: Path) -> None:
    """The owner of the directory could otherwise obtain the token."""
    remembered = tmp_path / ".strom" / "server"
    remembered.parent.mkdir()
    remembered.write_text("https://elsewhere.example:1\n")
    with pytest.raises(CommandError, match="may only name an address of this machine"):
        server.address(None, {"XDG_CONFIG_HOME": str(tmp_path / "absent")}, tmp_path)
