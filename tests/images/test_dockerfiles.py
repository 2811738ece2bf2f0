"""Checks of the images without building them."""

import itertools
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from stromboli.shared import loopback_token
from tests.images.support import image_build

SERVICES = ("admission", "console", "controller", "history", "monitor", "scheduler")


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_runs_unprivileged_and_has_a_health_check(
    service: str,
) -> None:
    steps = {step.instruction: step.value for step in image_build.dockerfile(service)}
    assert steps["USER"] == "65532:65532"
    assert steps["ENTRYPOINT"] == f'["python", "-m", "stromboli.{service}"]'
    port = steps["EXPOSE"].split()[0]
    assert f"http://127.0.0.1:{port}/livez" in steps["HEALTHCHECK"]


def test_admission_keeps_its_token_where_a_container_may_write() -> None:
    """Its user has no home, and the chart makes the root file system read-only."""
    steps = image_build.dockerfile("admission")
    variables = dict(step.value.split("=", 1) for step in steps if step.instruction == "ENV")
    assert loopback_token.file_of(8480, variables).is_relative_to("/tmp")


@pytest.mark.parametrize("service", SERVICES)
def test_the_base_image_can_be_given_by_digest(service: str) -> None:
    """One build argument in front of all stages names it for each."""
    first, *rest = image_build.dockerfile(service)
    assert first == image_build.Step("ARG", "PYTHON_IMAGE=python:3.13-slim")
    stages = [step.value for step in rest if step.instruction == "FROM"]
    assert stages == ["$PYTHON_IMAGE AS build", "$PYTHON_IMAGE"]


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_installs_the_locked_versions(service: str) -> None:
    """The versions of the workspace's lock, each with its hash."""
    wanted = image_build.requirements(service)
    assert wanted
    assert wanted.items() <= image_build.locked().items()
    text = (image_build.ROOT / "services" / service / "requirements.txt").read_text()
    assert all(f"{name}=={version}" in text for name, version in wanted.items())
    assert text.count("\n    --hash=sha256:") >= len(wanted)


def test_no_image_installs_another_services_dependencies() -> None:
    """The scheduler has no Kubernetes client; no other service compiles loops."""
    wanted = {service: set(image_build.requirements(service)) for service in SERVICES}
    assert "kubernetes-asyncio" not in wanted["scheduler"]
    assert {"numpy", "numba"} <= wanted["scheduler"]
    for service in ("admission", "controller", "monitor"):
        assert "kubernetes-asyncio" in wanted[service]
        assert not {"numpy", "numba"} & wanted[service]
    assert not any({"pytest", "hypothesis", "textual"} & names for names in wanted.values())


class EmptyIndex(BaseHTTPRequestHandler):
    """A package index without packages."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def index(authority: trustme.CA) -> Iterator[str]:
    """The address of an index whose certificate only ``authority`` vouches for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), EmptyIndex)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()
    thread.join()


def first_steps(service: str) -> list[image_build.Step]:
    """Those between FROM and the first COPY, which make the file of trusted certificates."""
    steps = iter(image_build.dockerfile(service))
    next(step for step in steps if step.instruction == "FROM")
    return list(itertools.takewhile(lambda step: step.instruction != "COPY", steps))


def test_every_image_trusts_certificates_in_the_same_way() -> None:
    assert all(first_steps(service) == first_steps("monitor") for service in SERVICES)


@pytest.mark.parametrize("is_given", [True, False])
def test_a_build_trusts_the_certificates_of_its_argument(
    is_given: bool, authority: trustme.CA, index: str, tmp_path: Path
) -> None:
    """Behind a proxy that intercepts TLS, uv else ends with UnknownIssuer."""
    given = {"CA_CERTIFICATES": authority.cert_pem.bytes().decode()} if is_given else {}
    stage = image_build.Stage(tmp_path, given)
    for step in first_steps("monitor"):
        stage.take(step, {})
    environment = {**os.environ, **stage.environment, "UV_HTTP_RETRIES": "0"}
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--no-cache"]
    tried = subprocess.run(
        [*uv, "--target", str(tmp_path / "t"), "--default-index", index, "no-such-package"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("not found in the package registry" in tried.stderr) is is_given, tried.stderr
    assert ("UnknownIssuer" in tried.stderr) is not is_given, tried.stderr
