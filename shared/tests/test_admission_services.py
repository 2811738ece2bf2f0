"""Names and ports of Services that job plugins create: rejected at admission, not later, when pods
wait for the Service."""

import pytest

from shared.tests.test_admission_jobs import job, refused, task


@pytest.mark.parametrize("port", [0, 70000])
@pytest.mark.parametrize(
    ("plugin", "argument", "first"),
    [
        ("mpi", "port", "master"),
        ("pytorch", "port", "master"),
        ("tensorflow", "port", "ps"),
        ("ray", "dashboardPort", "head"),
    ],
)
def test_a_port_of_a_plugin_is_one_of_tcp(
    plugin: str, argument: str, first: str, port: int
) -> None:
    plugins = {plugin: [f"--{argument}={port}"]}
    document = job(plugins=plugins, tasks=[task(), task(name=first)])
    assert list(refused(document)) == [f"spec.plugins.{plugin}"]


@pytest.mark.parametrize("plugin", ["svc", "pytorch", "mpi", "tensorflow", "ray"])
def test_a_job_with_a_service_has_a_name_that_begins_with_a_letter(plugin: str) -> None:
    """Unlike names of pods. Else the job's Service cannot be created, and its pods wait for it."""
    document = job(plugins={plugin: []}, tasks=[task(name="master"), task(name="head")])
    document["metadata"]["name"] = "1job"
    assert "a Service of this job would be named 1job" in refused(document)["spec.plugins.svc"]
    document["metadata"]["name"] = "job1"
    assert refused(document) == {}
    document = job()
    document["metadata"]["name"] = "1job"
    assert refused(document) == {}


def test_the_service_of_a_ray_head_has_a_valid_name() -> None:
    document = job(plugins={"ray": []}, tasks=[task(name="head", replicas=1)])
    document["metadata"]["name"] = "r" * 55
    assert "has 64 characters, more than 63" in refused(document)["spec.plugins.ray"]
    document["metadata"]["name"] = "r" * 54
    assert refused(document) == {}
