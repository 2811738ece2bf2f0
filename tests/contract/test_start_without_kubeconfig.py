"""Services that need an API server, started where no configuration leads to one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KUBERNETES = ("KUBERNETES_SERVICE_HOST", "KUBECONFIG")


@pytest.mark.parametrize("service", ["admission", "controller", "monitor"])
def test_a_service_without_a_kubeconfig_ends_with_one_line_that_names_the_setting(
    service: str, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in KUBERNETES}
    ports = {f"STROM_{service.upper()}_HEALTH_PORT": "0"}
    if service == "admission":
        ports["STROM_ADMISSION_REST_PORT"] = "0"
    ended = subprocess.run(
        [sys.executable, "-m", f"stromboli.{service}"],
        env={**environment, **ports, "HOME": str(tmp_path), "STROM_KAFKA_BOOTSTRAP": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert "STROM_KUBERNETES_KUBECONFIG" in last
    assert "~/.kube/config" in last
