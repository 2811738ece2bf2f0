"""Keys are made with their Secret, are real, and show up nowhere else."""

import base64
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from services.controller.tests.support import service_harness
from stromboli.controller.core import commands
from stromboli.controller.core.pods import plugin_objects
from stromboli.controller.execution import secret_data
from stromboli.shared.api import kinds
from stromboli.shared.jobspec import job_plugins
from stromboli.testkit.builders import make_job, make_task


def test_a_private_key_belongs_to_the_public_one_that_lets_in() -> None:
    made = secret_data.ssh_keys()
    key = serialization.load_pem_private_key(made["id_rsa"], None)
    assert isinstance(key, rsa.RSAPrivateKey)
    assert key.key_size == 2048
    assert made["id_rsa"].startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    public = serialization.load_ssh_public_key(made["authorized_keys"])
    assert isinstance(public, rsa.RSAPublicKey)
    assert public.public_numbers() == key.public_key().public_numbers()
    assert made["id_rsa.pub"] == made["authorized_keys"]


async def test_the_keys_are_added_to_the_request_body_only() -> None:
    (requested,) = plugin_objects.creations(make_job(plugins={"ssh": ()}), job_plugins.BUILT_IN)
    body = msgspec.json.decode(await secret_data.completed(requested))
    assert set(body["data"]) == {"config", "id_rsa", "id_rsa.pub", "authorized_keys"}
    assert "PRIVATE" not in repr(requested)
    assert body["metadata"]["name"] == "j1-ssh"


async def test_a_token_cannot_be_guessed() -> None:
    requested = commands.Create(
        kind=kinds.SECRETS, namespace="default", name="t", body=b"{}", secret="token"
    )
    one, other = [
        msgspec.json.decode(await secret_data.completed(requested))["data"]["token"]
        for _ in range(2)
    ]
    assert one != other
    assert len(base64.b64decode(one)) >= 32


async def test_keys_are_created_once_and_neither_a_restart_nor_scaling_changes_them(
    tmp_path: Path,
) -> None:
    async with service_harness.set_up(tmp_path, faults=None) as scene:

        async def data() -> dict[str, str]:
            raw = await scene.cluster.get(kinds.SECRETS, "default", "j1-ssh")
            found: dict[str, str] = msgspec.json.decode(raw)["data"]
            return found

        async with scene.controller():
            await scene.submit(make_job(tasks=[make_task("w", 1)], plugins={"ssh": ()}))
            await scene.until(
                kinds.JOBS,
                "default/j1",
                lambda job: "plugin-ssh" in job.status.controlled_resources,
            )
            first = await data()
            seen = (await scene.job("default/j1", "Pending")).status.controlled_resources
        async with scene.controller():
            body = msgspec.json.decode(await scene.cluster.get(kinds.JOBS, "default", "j1"))
            body["spec"]["tasks"][0]["replicas"] = 2
            patch = msgspec.json.encode({"spec": {"tasks": body["spec"]["tasks"]}})
            await scene.cluster.patch(kinds.JOBS, "default", "j1", patch, patch_type="merge")
            await scene.until(
                kinds.JOBS,
                "default/j1",
                lambda job: job.status.controlled_resources != seen,
            )
            second = await data()
        assert "j1-w-1" in base64.b64decode(second.pop("config")).decode()
        assert "j1-w-1" not in base64.b64decode(first.pop("config")).decode()
        assert first == second
        key = base64.b64decode(first["id_rsa"])
        for records in scene.read.values():
            assert not any(key in (record.value or b"") for record in records)
