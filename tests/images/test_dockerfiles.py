"""What can be said of the images without building them."""

import pytest

from tests.images.support import image_build

SERVICES = ("admission", "controller", "monitor", "scheduler")


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_runs_unprivileged_and_has_a_health_check(
    service: str,
) -> None:
    steps = {step.instruction: step.value for step in image_build.dockerfile(service)}
    assert steps["USER"] == "65532:65532"
    assert steps["ENTRYPOINT"] == f'["python", "-m", "stromboli.{service}"]'
    port = steps["EXPOSE"].split()[0]
    assert f"http://127.0.0.1:{port}/livez" in steps["HEALTHCHECK"]


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
    """The scheduler has no Kubernetes client; nobody else compiles loops."""
    wanted = {service: set(image_build.requirements(service)) for service in SERVICES}
    assert "kubernetes-asyncio" not in wanted["scheduler"]
    assert {"numpy", "numba"} <= wanted["scheduler"]
    for service in ("admission", "controller", "monitor"):
        assert "kubernetes-asyncio" in wanted[service]
        assert not {"numpy", "numba"} & wanted[service]
    assert not any({"pytest", "hypothesis", "textual"} & names for names in wanted.values())
