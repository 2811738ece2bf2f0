"""Cases of admission for kinds other than jobs and queues: the path of the violation, and the
object."""

from typing import Any

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.testkit.admission_cases.manifests import (
    Document,
    bare_object,
    command,
    cron,
    flow,
    hyper_node,
    job,
    member,
    pod,
    pod_group,
    reservation,
)


def _renamed(document: Document, name: str) -> Document:
    document["metadata"]["name"] = name
    return document


JDB_MIN = keys.JDB_MIN_AVAILABLE
JDB_MAX = keys.JDB_MAX_UNAVAILABLE
BOTH_TIERS = {"highestTierAllowed": 1, "highestTierName": "rack"}
JOB_SPEC = {"spec": job()["spec"]}
NEEDS_TOO_MUCH = {"spec": job(minAvailable=9)["spec"]}
RACK = hyper_node(member(exactMatch={"name": "n1"}), name="rack-0", tierName="rack")
OTHER_KINDS: dict[Kind[Any], dict[str, tuple[str, Document]]] = {
    kinds.POD_GROUPS: {
        "plain": ("", pod_group(queue="default")),
        "in-a-queue-of-ones-own": ("", pod_group(queue="child")),
        "a-tier-by-name": ("", pod_group(networkTopology={"highestTierName": "rack"})),
        "both-tiers": ("spec.networkTopology", pod_group(networkTopology=BOTH_TIERS)),
        "a-hard-wish-without-a-tier": (
            "spec.networkTopology",
            pod_group(networkTopology={"mode": "hard"}),
        ),
        "a-soft-wish-without-a-tier": ("", pod_group(networkTopology={"mode": "soft"})),
        "both-tiers-of-a-part": (
            "spec.subGroupPolicy[0].networkTopology",
            pod_group(subGroupPolicy=[{"name": "a", "networkTopology": BOTH_TIERS}]),
        ),
    },
    kinds.PODS: {
        "plain": ("", pod()),
        "a-number": ("", pod(**{JDB_MIN: "2"})),
        "a-share": ("", pod(**{JDB_MAX: "30%"})),
        "of-another-scheduler": ("", pod("default-scheduler", **{JDB_MIN: "none"})),
        "no-number": (f"metadata.annotations[{JDB_MIN}]", pod(**{JDB_MIN: "some"})),
        "none-at-all": (f"metadata.annotations[{JDB_MIN}]", pod(**{JDB_MIN: "0"})),
        "all-of-them": (f"metadata.annotations[{JDB_MAX}]", pod(**{JDB_MAX: "100%"})),
        "both": ("metadata.annotations", pod(**{JDB_MIN: "1", JDB_MAX: "1"})),
    },
    kinds.JOB_FLOWS: {
        "in-order": ("", flow(a=[], b=["a"])),
        "empty": ("", flow()),
        "an-unknown-target": ("spec.flows[0].dependsOn.targets[0]", flow(a=["b"])),
        "waiting-for-itself": ("spec.flows", flow(a=["a"])),
        "a-name-that-no-job-has": ("spec.flows[0].name", flow(**{"a.b": []})),
        "a-flow-of-which-no-job-has-the-name": (
            "metadata.name",
            _renamed(flow(a=[], b=["a"]), "a.b"),
        ),
        "a-name-without-jobs": ("", _renamed(flow(), "a.b")),
        "the-longest-name": ("", flow(**{"n" * 54: []})),
        "a-name-too-long": ("spec.flows[0].name", flow(**{"n" * 55: []})),
    },
    kinds.CRON_JOBS: {
        "every-five-minutes": ("", cron()),
        "a-descriptor": ("", cron("@daily")),
        "an-interval": ("", cron("@every 1h30m")),
        "names-and-steps": ("", cron("0 8-18/2 1,15 jan-mar mon")),
        "a-time-zone": ("", cron(timeZone="Europe/Berlin")),
        "of-another-scheduler": (
            "",
            cron("* * * *", jobTemplate={"spec": job(schedulerName="other")["spec"]}),
        ),
        "no-schedule": ("spec.schedule", cron("")),
        "four-fields": ("spec.schedule", cron("* * * *")),
        "an-unknown-descriptor": ("spec.schedule", cron("@sometimes")),
        "a-time-zone-in-the-schedule": ("spec.schedule", cron("TZ=UTC * * * * *")),
        "a-time-zone-without-a-name": ("spec.timeZone", cron(timeZone="")),
        "the-local-time-zone": ("spec.timeZone", cron(timeZone="Local")),
        "a-path-as-a-time-zone": ("spec.timeZone", cron(timeZone="../etc/passwd")),
        "a-name-too-long": ("metadata.name", cron(name="n" * 53)),
    },
    kinds.HYPER_NODES: {
        "by-name": ("", hyper_node(member(exactMatch={"name": "n1"}))),
        "by-pattern": ("", hyper_node(member(regexMatch={"pattern": "^n[0-9]+$"}))),
        "no-members": ("spec.members", bare_object(kinds.HYPER_NODES, "rack-1", spec={"tier": 1})),
    },
    kinds.ADVANCE_RESERVATIONS: {
        "for-a-user": ("", reservation(users=["ann"])),
        "for-maintenance": ("", reservation(maintenance=True, duration="4h", endTime=None)),
        "by-label": ("", reservation(queues=["default"], nodeNames=None, nodeSelector={"a": "b"})),
        "for-nobody": ("spec.maintenance", reservation()),
        "for-a-user-and-maintenance": (
            "spec.maintenance",
            reservation(maintenance=True, groups=["staff"]),
        ),
        "without-an-end": ("spec.endTime", reservation(users=["ann"], endTime=None)),
        "with-two-ends": ("spec.duration", reservation(users=["ann"], duration="1h")),
        "that-ends-first": (
            "spec.endTime",
            reservation(users=["ann"], endTime="2026-11-30T08:00:00Z"),
        ),
        "of-no-length": (
            "spec.duration",
            reservation(users=["ann"], endTime=None, duration="0s"),
        ),
        "a-lead-time-below-zero": ("spec.leadTime", reservation(users=["ann"], leadTime="-1h")),
        "without-nodes": ("spec.nodeNames", reservation(users=["ann"], nodeNames=None)),
        "with-nodes-and-all": ("spec.nodeNames", reservation(users=["ann"], allNodes=True)),
    },
    kinds.COMMANDS: {
        "for-a-job": ("", command("AbortJob")),
        "for-a-queue": ("", command("CloseQueue", kinds.QUEUES)),
        "open-what-is-closed": ("", command("OpenQueue", kinds.QUEUES, "closed")),
        "open-below-a-closed-one": ("", command("OpenQueue", kinds.QUEUES, "below-shut")),
        "for-nobody": ("target", bare_object(kinds.COMMANDS, "wish", action="AbortJob")),
        "for-a-node": ("target.kind", command("AbortJob", kinds.NODES)),
        "for-a-podgroup": ("target.kind", command("AbortJob", kinds.POD_GROUPS)),
        "for-a-job-of-kubernetes": (
            "target.apiVersion",
            command("AbortJob", kinds.KUBERNETES_JOBS),
        ),
        "an-unknown-action": ("action", command("Explode")),
        "a-part-that-it-cannot-name": ("action", command("RestartPod")),
    },
}
CONTEXT_OTHER_KINDS: dict[Kind[Any], dict[str, tuple[str, Document]]] = {
    kinds.POD_GROUPS: {
        "an-unknown-tier-name": (
            "spec.networkTopology",
            pod_group(networkTopology={"mode": "hard", "highestTierName": "rock"}),
        ),
        "an-unknown-queue": ("spec.queue", pod_group(queue="nowhere")),
        "a-closed-queue": ("spec.queue", pod_group(queue="closed")),
    },
    kinds.COMMANDS: {
        "close-the-root": ("target.name", command("CloseQueue", kinds.QUEUES, "root")),
    },
    kinds.JOB_FLOWS: {"in-a-circle": ("spec.flows", flow(a=["b"], b=["a"]))},
    kinds.HYPER_NODES: {
        "a-pattern-that-is-none": (
            "spec.members[0].selector.regexMatch.pattern",
            hyper_node(member(regexMatch={"pattern": "n["})),
        ),
        "a-pattern-of-a-page": (
            "spec.members[0].selector.regexMatch.pattern",
            hyper_node(member(regexMatch={"pattern": "n" * 5000})),
        ),
    },
    kinds.CRON_JOBS: {
        "a-bad-name": ("metadata.name", cron(name="a_b")),
        "a-minute-that-is-none": ("spec.schedule", cron("60 * * * *")),
        "a-time-zone-that-nobody-has": ("spec.timeZone", cron(timeZone="Mars/Base")),
        "a-name-that-no-job-can-have": ("metadata.name", cron(name="a.b")),
        "a-template-that-needs-more-than-it-has": (
            "spec.jobTemplate.spec.minAvailable",
            cron(jobTemplate=NEEDS_TOO_MUCH),
        ),
        "a-template-with-an-unknown-plugin": (
            "spec.jobTemplate.spec.plugins.teleport",
            cron(jobTemplate={"spec": job(plugins={"teleport": []})["spec"]}),
        ),
        "a-template-that-waits-for-nothing": (
            f"spec.jobTemplate.metadata.annotations[{keys.AFTER}]",
            cron(jobTemplate={"metadata": {"annotations": {keys.AFTER: "x:"}}, **JOB_SPEC}),
        ),
    },
}
