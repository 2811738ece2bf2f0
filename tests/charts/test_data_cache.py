"""The data caches that the monitor's chart installs on nodes."""

import pytest

from stromboli.shared.jobspec import data_sets
from stromboli.testkit.parts import tools
from tests.charts.support import helm

pytestmark = pytest.mark.real


def test_data_caches_are_off_and_have_the_folder_that_pods_mount(real_tools: tools.Tools) -> None:
    """They run with the account of the node agents, and read no origin that is not listed."""
    plain = helm.rendered("monitor", *helm.BROKERS)
    assert [each["metadata"]["name"] for each in plain if each["kind"] == "DaemonSet"] == [
        "stromboli-monitor-agent"
    ]
    options = (
        *("--set", "dataCache.enabled=true", "--set", "dataCache.capacityGiB=500"),
        *("--set", "dataCache.allowedOrigins={https://data.example.org,s3://corpora}"),
    )
    found = helm.rendered("monitor", *helm.BROKERS, *options)
    agent, cache = sorted(
        (each for each in found if each["kind"] == "DaemonSet"),
        key=lambda each: str(each["metadata"]["name"]),
    )
    pod = cache["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values["STROM_DATA_CACHE_CAPACITY_BYTES"] == str(500 * 2**30)
    assert values["STROM_DATA_CACHE_ALLOWED_ORIGINS"] == "https://data.example.org,s3://corpora"
    assert values["STROM_DATA_CACHE_ROOT"] == data_sets.DEFAULT_ROOT
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted["data"] == data_sets.DEFAULT_ROOT
    account = agent["spec"]["template"]["spec"]["serviceAccountName"]
    assert pod["serviceAccountName"] == account
    labels = cache["spec"]["template"]["metadata"]["labels"].items()
    policy = helm.the_only(found, "NetworkPolicy")
    allowed = [
        source["podSelector"]["matchLabels"].items()
        for rule in policy["spec"]["ingress"]
        if rule["ports"][0]["port"] == 8484
        for source in rule["from"]
    ]
    assert any(selector <= labels for selector in allowed)
    with pytest.raises(helm.HelmError, match=r"dataCache\.enabled needs agent\.enabled"):
        helm.rendered("monitor", *helm.BROKERS, *options, "--set", "agent.enabled=false")
