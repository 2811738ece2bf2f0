"""Who we are: from where, read when, and sent to whom."""

from pathlib import Path

import httpx
import pytest

from stromboli.client import AsyncClient, Client, credentials, errors

HERE, AWAY = "http://127.0.0.1:1", "https://stromboli.example"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without any credentials."""
    for name in (credentials.TOKEN, credentials.TOKEN_FILE, credentials.CA_FILE):
        monkeypatch.delenv(name, raising=False)


class RecordingServer:
    """A server that records received headers and responds like one without objects."""

    def __init__(self) -> None:
        self.tokens: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.tokens.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"items": []})

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self)


def test_arguments_override_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, other = tmp_path / "given", tmp_path / "other"
    path.write_text("from-given-file\n")
    other.write_text("from-file\n")
    recording_server = RecordingServer()

    def ask(**options: str) -> str | None:
        with Client(AWAY, transport=recording_server.transport(), **options) as client:  # type: ignore[arg-type]
            client.queues()
        return recording_server.tokens[-1]

    assert ask() is None
    monkeypatch.setenv(credentials.TOKEN_FILE, str(other))
    assert ask() == "Bearer from-file"
    monkeypatch.setenv(credentials.TOKEN, "from-variable")
    assert ask() == "Bearer from-variable"
    assert ask(token_file=str(path)) == "Bearer from-given-file"
    assert ask(token="given") == "Bearer given"


async def test_a_file_is_read_again_for_each_request(tmp_path: Path) -> None:
    """Tokens of an hour are renewed in place."""
    file, recording_server = tmp_path / "token", RecordingServer()
    async with AsyncClient(AWAY, token_file=file, transport=recording_server.transport()) as client:
        for token in ("first", "second"):
            file.write_text(token)
            await client.queues()
    assert recording_server.tokens == ["Bearer first", "Bearer second"]


async def test_a_function_gives_the_token_of_each_request() -> None:
    """Tokens of an identity provider are renewed while a client lives."""
    tokens, recording_server = iter(["first", "second"]), RecordingServer()
    async with AsyncClient(
        AWAY, token=lambda: next(tokens), transport=recording_server.transport()
    ) as client:
        for _ in range(2):
            await client.queues()
    assert recording_server.tokens == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("text", [None, "", " \n"], ids=["absent", "empty", "blank"])
def test_a_file_without_a_token_is_reported_and_nothing_is_sent(
    tmp_path: Path, text: str | None
) -> None:
    file, recording_server = tmp_path / "token", RecordingServer()
    if text is not None:
        file.write_text(text)
    with (
        Client(AWAY, token_file=file, transport=recording_server.transport()) as client,
        pytest.raises(errors.UnreadableFileError, match=str(file)),
    ):
        client.queues()
    assert recording_server.tokens == []


def test_a_token_never_travels_in_the_clear() -> None:
    """To this machine it may."""
    with pytest.raises(errors.UnsafeTokenError, match="https"):
        Client("http://stromboli.example", token="t")
    recording_server = RecordingServer()
    with Client(HERE, token="t", transport=recording_server.transport()) as client:
        client.queues()
    assert recording_server.tokens == ["Bearer t"]


def test_credentials_of_other_programs_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """httpx would send what ~/.netrc has for a host."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine stromboli.example login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    recording_server = RecordingServer()
    with Client(AWAY, transport=recording_server.transport()) as client:
        client.queues()
    assert recording_server.tokens == [None]


@pytest.mark.parametrize("text", [None, "no certificate"], ids=["absent", "another file"])
def test_an_unreadable_ca_file_is_reported(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(errors.UnreadableFileError, match=str(file)):
        Client(AWAY, ca_file=file)


@pytest.mark.parametrize(
    ("status", "error"), [(401, errors.UnauthenticatedError), (403, errors.ForbiddenError)]
)
def test_unauthenticated_and_unauthorized_are_distinguished(
    status: int, error: type[errors.ResponseError]
) -> None:
    violation = {"path": "rights", "reason": "cannot", "expected": "a Role"}
    problem = {"title": "no", "status": status, "detail": "why", "violations": [violation]}

    def answer(_: httpx.Request) -> httpx.Response:
        kind = {"content-type": "application/problem+json"}
        return httpx.Response(status, json=problem, headers=kind)

    with Client(AWAY, transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(error) as caught:
            client.queues()
        assert caught.value.violations[0].expected == "a Role"
