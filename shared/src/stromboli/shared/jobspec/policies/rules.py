"""The validation rules in CEL. Each is an expression whose value is a list of messages, empty for a
valid object.

A message is ``path: reason``, as in Python. CEL's macros have no list index, so a task is
identified by its name: ``spec.tasks[work].minAvailable``. Rules that need other objects (queues),
positions in a cycle, whole pod templates or the time zone database are not here; the controller
checks them later. Language and libraries: Kubernetes 1.30 and later.
"""

import json
from collections.abc import Iterable

import msgspec

from stromboli.shared import keys, network_topology
from stromboli.shared.api import batch, kinds
from stromboli.shared.formats import cron
from stromboli.shared.jobspec import job_plugins, policy_event_names
from stromboli.shared.jobspec.validation import cron_jobs, jobs, policies, user_commands

Rules = dict[str, str]
"""Name of a CEL variable -> expression whose value is a list of messages."""
CHANGEABLE = frozenset(
    {
        "activeDeadlineSeconds",
        "array",
        "minAvailable",
        "priorityClassName",
        "queue",
        "runningEstimate",
        "tasks",
        "volumes",
    }
)
"""Fields of a job's spec that an update may change, at least in part."""
URI = r"^[a-z][a-z0-9+.-]*://[!-\"$-.0->A-~]*([/?#][!-~]*)?$"
_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
OWN_NAME = "object.metadata.name"
NO_LABEL = "'metadata.name: at most 63 lower case letters, digits and -'"


def _list(values: Iterable[str]) -> str:
    return json.dumps(list(values))


def _tiers(topology: str) -> str:
    """An expression for the violation of the tiers of an existing networkTopology; its value is
    empty for valid tiers.
    """
    number, name = (
        f"has({topology}.highestTierAllowed)",
        f"{topology}.?highestTierName.orValue('') != ''",
    )
    neither = f"{topology}.?mode.orValue('hard') == 'hard' && !{number} && !({name})"
    return (
        f"({number} && {name} ? 'both highestTierAllowed and highestTierName'"
        f" : {neither} ? '{network_topology.NO_TIER}' : '')"
    )


def _when(condition: str, text: str) -> str:
    """An expression for a list with the message ``text`` if the condition holds, else an empty
    list."""
    return f"{condition} ? [{text}] : []"


def _policy_rules(where: str, path: str) -> list[str]:
    """Expressions for the violations of a list of lifecycle policies; both arguments are
    expressions."""
    events = "((has(p.event) && p.event != '' ? [p.event] : []) + (has(p.events) ? p.events : []))"
    others = events.replace("p.", "q.")
    checks = [
        (f"{events}.size() > 0 && has(p.exitCode)", "both events and exitCode"),
        (f"{events}.size() == 0 && !has(p.exitCode)", "neither event nor exitCode"),
        ("has(p.exitCode) && p.exitCode == 0", "exit code 0 is success"),
        (
            f"{events}.exists(e, !(e in {_list(policy_event_names.ACCEPTED)}))",
            f"an event is not one of {', '.join(policy_event_names.ACCEPTED)}",
        ),
        (
            f"!has(p.action) || !(p.action in {_list(policies.ACTIONS)})",
            f"the action is not one of {', '.join(policies.ACTIONS)}",
        ),
        (
            f"{events}.exists(e, {where}.filter(q, e in {others}).size() > 1)",
            "an event has two policies",
        ),
        (
            "has(p.exitCode)"
            f" && {where}.filter(q, has(q.exitCode) && q.exitCode == p.exitCode).size() > 1",
            "an exit code has two policies",
        ),
        (
            f"'*' in {events} && {where}.exists(q, {others}.exists(e, e != '*'))",
            "event * together with other events",
        ),
    ]
    return [
        f"({where}.exists(p, {condition}) ? [{path} + ': {reason}'] : [])"
        for condition, reason in checks
    ]


OWN_TIERS = _when(
    f"has(object.spec.networkTopology) && {_tiers('object.spec.networkTopology')} != ''",
    f"'spec.networkTopology: ' + {_tiers('object.spec.networkTopology')}",
)


def _of_jobs() -> Rules:
    tasks = "variables.tasks"
    path = "'spec.tasks[' + t.?name.orValue('') + ']"
    replicas = "t.?replicas.orValue(0)"
    # The indexes of an array are not parsed here; the check assumes an index of one digit.
    highest = f"({replicas} > 0 && !has(object.spec.array) ? {replicas} - 1 : 0)"
    partition = "has(t.partitionPolicy)"
    whole = "t.partitionPolicy.totalPartitions * t.partitionPolicy.partitionSize"
    least = "t.partitionPolicy.?minPartitions.orValue(0) * t.partitionPolicy.partitionSize"
    task_policies = "(has(t.policies) ? t.policies : [])"
    of_tasks = " + ".join(_policy_rules(task_policies, f"{path}.policies'"))
    on_create = "request.operation == 'CREATE'"
    fixed = [
        field.encode_name
        for field in msgspec.structs.fields(batch.JobSpec)
        if field.encode_name not in CHANGEABLE
    ]
    changed = [
        f"(object.spec.?{name} != oldObject.spec.?{name} ? "
        f"['spec.{name}: cannot be changed in a job that exists'] : [])"
        for name in fixed
    ]
    return {
        "noTask": _when(f"{tasks}.size() == 0", "'spec.tasks: at least one task is required'"),
        "name": _when(f"{on_create} && {_is_no_label(OWN_NAME)}", NO_LABEL),
        "taskNames": f"{tasks}.filter(t, t.?name.orValue('') != '' && "
        f"{tasks}.filter(o, o.?name.orValue('') == t.?name.orValue('')).size() > 1)"
        f".map(t, {path}.name: is duplicate')",
        "podNames": f"{tasks}.filter(t, (object.metadata.name + '-' + t.?name.orValue('') + '-' + "
        f"string({highest})).size() > 63).map(t, {path}.name: names of pods would be too long')",
        "minAvailable": _when(
            f"object.spec.?minAvailable.orValue(0) > {tasks}.map(t, {replicas}).sum()",
            "'spec.minAvailable: above the sum of all replicas'",
        ),
        "size": _when(
            f"{tasks}.map(t, {replicas}).sum() > {batch.MOST_PODS}",
            f"'spec.tasks: at most {batch.MOST_PODS} pods in one job'",
        ),
        "taskMinAvailable": f"{tasks}.filter(t, t.?minAvailable.orValue(0) > {replicas})"
        f".map(t, {path}.minAvailable: above the replicas')",
        "tiers": OWN_TIERS,
        "taskTiers": f"{tasks}.filter(t, {partition} && has(t.partitionPolicy.networkTopology)"
        f" && {_tiers('t.partitionPolicy.networkTopology')} != '')"
        f".map(t, {path}.partitionPolicy.networkTopology: '"
        f" + {_tiers('t.partitionPolicy.networkTopology')})",
        "partitions": f"{tasks}.filter(t, {partition} && {replicas} != {whole})"
        f".map(t, {path}.replicas: not a whole number of partitions')",
        "partitionsAtLeast": f"{tasks}.filter(t, {partition} && has(t.minAvailable)"
        f" && {least} > 0 && t.minAvailable != {least})"
        f".map(t, {path}.minAvailable: not a whole number of partitions')",
        "policies": " + ".join(_policy_rules("variables.policies", "'spec.policies'")),
        "taskPolicies": f"{tasks}.map(t, ({of_tasks}).join('; ')).filter(m, m != '')",
        "plugins": "has(object.spec.plugins) ? object.spec.plugins"
        f".filter(name, !(name in {_list(sorted(job_plugins.BUILT_IN))}))"
        ".map(name, 'spec.plugins.' + name + ': is unknown') : []",
        "mounts": "variables.volumes.filter(v, variables.volumes"
        ".filter(o, o.mountPath == v.mountPath).size() > 1)"
        ".map(v, 'spec.volumes: ' + v.mountPath + ' is mounted twice')",
        # The controller later adds the name of the claim that it created.
        "claims": "!variables.isNew ? [] : variables.volumes.filter(v, has(v.volumeClaim) =="
        " (v.?volumeClaimName.orValue('') != ''))"
        ".map(v, 'spec.volumes: ' + v.mountPath + ' needs volumeClaim or volumeClaimName,"
        " exactly one')",
        **_of_data_sets(),
        "taskCount": _when(
            f"!variables.isNew && oldObject.spec.?tasks.orValue([]).size() != {tasks}.size()",
            "'spec.tasks: tasks cannot be added or removed'",
        ),
        "taskTemplates": _when(
            "!variables.isNew && oldObject.spec.?tasks.orValue([]).map(t, t.?template) != "
            f"{tasks}.map(t, t.?template)",
            "'spec.tasks: templates cannot be changed in a job that exists'",
        ),
        "array": _when(
            "!variables.isNew && ['indexes', 'maxRetries'].exists(f, "
            "object.spec.?array[?f] != oldObject.spec.?array[?f])",
            "'spec.array: only cancelled can be changed in a job that exists'",
        ),
        # Whether pods are on nodes already is known from the PodGroup, which is not read here.
        "queue": _when(
            "!variables.isNew && object.spec.?queue != oldObject.spec.?queue && "
            f"!(oldObject.?status.?state.?phase.orValue('') in {_list(jobs.WAITS)})",
            "'spec.queue: can be changed only while the job waits'",
        ),
        "fixed": f"variables.isNew ? [] : {' + '.join(changed)}",
    }


def _of_data_sets() -> Rules:
    """Rules of a new job's data sets, which never change. Sizes, namespaces of Fluid and query
    parameters are not here."""

    def each(condition: str, reason: str) -> str:
        invalid_sets = f"variables.dataSets.filter(d, {condition})"
        texts = f"map(d, 'spec.dataSets[' + d.name + ']{reason}')"
        return f"!variables.isNew ? [] : {invalid_sets}.{texts}"

    uri = "d.?uri.orValue('')"
    same = "variables.dataSets.filter(o, o.{0} == d.{0}).size() > 1"
    mounts = (
        f"{same.format('mountPath')} || variables.volumes.exists(v, v.mountPath == d.mountPath)"
    )
    return {
        "dataNames": each(same.format("name"), ".name: is duplicate"),
        "dataMounts": each(mounts, ".mountPath: is mounted twice"),
        "dataSources": each(
            f"({uri} == '') == (d.?persistentVolumeClaim.orValue('') == '')",
            " needs uri or persistentVolumeClaim, exactly one",
        ),
        "dataWrites": each(
            f"{uri} != '' && !d.?readOnly.orValue(true)", ".readOnly: copies of a uri are read-only"
        ),
        "dataUris": each(
            f"{uri} != '' && !{uri}.matches(r'{URI}')",
            ".uri: is not a URI without spaces, user name and password",
        ),
    }


def _of_queues() -> Rules:
    amounts = {
        "capability": "variables.capability",
        "deserved": "variables.deserved",
        "guarantee.resource": "variables.guarantee",
    }
    negative = [
        f"{variable}.filter(r, quantity(string({variable}[r])).isLessThan(quantity('0')))"
        f".map(r, 'spec.{field}.' + r + ': is negative')"
        for field, variable in amounts.items()
    ]
    broken = [
        f"{variable}.filter(r, !(r in ['cpu', 'memory', 'ephemeral-storage'])"
        f" && !quantity(string({variable}[r])).isInteger())"
        f".map(r, 'spec.{field}.' + r + ': is not a whole number')"
        for field, variable in amounts.items()
    ]
    hierarchy = f"object.metadata.?annotations[?'{keys.HIERARCHY}'].orValue('')"
    weights = f"object.metadata.?annotations[?'{keys.HIERARCHY_WEIGHTS}'].orValue('')"
    at = f"'metadata.annotations[{keys.HIERARCHY_WEIGHTS}]: "
    has_either = f"({hierarchy} != '' || {weights} != '')"
    root = "!variables.isNew && object.metadata.name == 'root' && "
    return {
        "negative": " + ".join(negative),
        "broken": " + ".join(broken),
        "deserved": "variables.guarantee.filter(r, !(r in variables.deserved)"
        " || quantity(string(variables.deserved[r]))"
        ".isLessThan(quantity(string(variables.guarantee[r]))))"
        ".map(r, 'spec.deserved.' + r + ': less than the guarantee')",
        "capability": "variables.deserved.filter(r, r in variables.capability"
        " && quantity(string(variables.deserved[r]))"
        ".isGreaterThan(quantity(string(variables.capability[r]))))"
        ".map(r, 'spec.deserved.' + r + ': more than the capability')",
        "weightCount": _when(
            f"{has_either} && {hierarchy}.split('/').size() != {weights}.split('/').size()",
            f"{at}needs one weight for each part of the hierarchy'",
        ),
        "weights": _when(
            f"{has_either} && {weights}.split('/')"
            r".exists(w, !w.matches(r'^[0-9]*\.?[0-9]+$') || double(w) <= 0.0)",
            f"{at}weights are numbers above 0'",
        ),
        "parent": _when(
            "object.spec.?parent.orValue('') == object.metadata.name",
            "'spec.parent: a queue cannot be its own parent'",
        ),
        **{
            f"root{field.title()}": _when(
                f"{root}object.spec.?{field} != oldObject.spec.?{field}",
                f"'spec.{field}: the resources of the root queue are those of the cluster'",
            )
            for field in ("capability", "deserved", "guarantee")
        },
    }


def _of_pods() -> Rules:
    keys_held = f"[{json.dumps(keys.JDB_MIN_AVAILABLE)}, {json.dumps(keys.JDB_MAX_UNAVAILABLE)}]"
    return {
        "numbers": f"{keys_held}.filter(k, k in variables.annotations && "
        r"!variables.annotations[k].matches('^(0*[1-9][0-9]*|[1-9][0-9]?%)$'))"
        ".map(k, 'metadata.annotations[' + k + ']:"
        " needs a whole number above 0, or 1% to 99%')",
        "both": _when(
            f"{keys_held}.all(k, k in variables.annotations)",
            "'metadata.annotations: both jdb-min-available and jdb-max-unavailable'",
        ),
    }


def _of_pod_groups() -> Rules:
    return {
        "tiers": OWN_TIERS,
        "subTiers": "object.?spec.?subGroupPolicy.orValue([]).filter(s, has(s.networkTopology) && "
        f"{_tiers('s.networkTopology')} != '').map(s, 'spec.subGroupPolicy[' + s.?name.orValue('')"
        f" + '].networkTopology: ' + {_tiers('s.networkTopology')})",
    }


def _is_no_label(name: str) -> str:
    """The CEL condition that an expression is no DNS label."""
    return f"({name}.size() > 63 || !{name}.matches(r'{_LABEL}'))"


def _of_flows() -> Rules:
    is_unusable, job_name = _is_no_label(OWN_NAME), f"({OWN_NAME} + '-' + f.name)"
    return {
        "name": _when(f"variables.flows.size() > 0 && {is_unusable}", NO_LABEL),
        "names": f"variables.flows.filter(f, !{is_unusable} && {_is_no_label(job_name)})"
        ".map(f, 'spec.flows[' + f.name + '].name: the name of its job would have more than 63"
        " characters, or others than lower case letters, digits and -')",
        "targets": "variables.flows.filter(f, f.?dependsOn.?targets.orValue([])"
        ".exists(t, !variables.flows.exists(o, o.name == t)))"
        ".map(f, 'spec.flows[' + f.name + '].dependsOn.targets: there is no such flow')",
        "itself": "variables.flows.filter(f, f.name in f.?dependsOn.?targets.orValue([]))"
        ".map(f, 'spec.flows[' + f.name + ']: waits for itself')",
    }


def _of_cron_jobs() -> Rules:
    schedule = "variables.schedule"
    descriptors = _list(sorted(cron.DESCRIPTORS))
    known = f"({schedule} in {descriptors} || {schedule}.startsWith('@every '))"
    return {
        "schedule": _when(
            f"!{known} && {schedule}.split(' ').filter(p, p != '').size() != 5",
            f"'spec.schedule: write {cron_jobs.SCHEDULE_EXPECTED.replace(chr(34), '')}'",
        ),
        "zoneInside": _when(
            f"{schedule}.contains('TZ')", "'spec.schedule: write the time zone in spec.timeZone'"
        ),
        "zone": _when(
            "has(object.spec.timeZone) && (object.spec.timeZone == ''"
            " || object.spec.timeZone.lowerAscii() == 'local'"
            r" || !object.spec.timeZone.matches('^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}"
            r"(/[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13})*$')"
            " || object.spec.timeZone.contains('..'))",
            "'spec.timeZone: is not the name of a time zone'",
        ),
        "name": _when(
            f"object.metadata.name.size() > {cron_jobs.MAX_NAME_LENGTH}",
            f"'metadata.name: at most {cron_jobs.MAX_NAME_LENGTH} characters'",
        ),
    }


def _of_reservations() -> Rules:
    listed = " + ".join(
        f"object.spec.?{field}.orValue([]).size()"
        for field in ("users", "groups", "namespaces", "queues")
    )
    ways = " + ".join(
        f"({it} ? 1 : 0)"
        for it in (
            "object.spec.?nodeNames.orValue([]).size() > 0",
            "object.spec.?nodeSelector.orValue({}).size() > 0",
            "object.spec.?allNodes.orValue(false)",
        )
    )
    has_end = "has(object.spec.endTime)"
    has_length = "object.spec.?duration.orValue('') != ''"
    return {
        "noEnd": _when(
            f"!({has_end}) && !({has_length})",
            "'spec.endTime: write either endTime or duration'",
        ),
        "twoEnds": _when(
            f"{has_end} && {has_length}", "'spec.duration: write either endTime or duration'"
        ),
        "order": _when(
            f"{has_end} && timestamp(object.spec.endTime) <= timestamp(object.spec.startTime)",
            "'spec.endTime: the period ends before it begins'",
        ),
        "length": _when(
            f"!({has_end}) && {has_length} && duration(object.spec.duration) <= duration('0s')",
            "'spec.duration: the period ends before it begins'",
        ),
        "lead": _when(
            "object.spec.?leadTime.orValue('') != ''"
            " && duration(object.spec.leadTime) < duration('0s')",
            "'spec.leadTime: is negative'",
        ),
        "principals": _when(
            f"({listed} > 0) == object.spec.?maintenance.orValue(false)",
            "'spec.maintenance: write either maintenance, or users, groups, namespaces or queues'",
        ),
        "nodes": _when(
            f"{ways} != 1",
            "'spec.nodeNames: write one of nodeNames, nodeSelector and allNodes'",
        ),
    }


def _of_commands() -> Rules:
    known = " || ".join(
        f"(object.target.kind == '{kind}' && object.?action.orValue('') in {_list(actions)})"
        for kind, actions in user_commands.ACTIONS.items()
    )
    kinds_known = _list(user_commands.ACTIONS)
    ours = " || ".join(
        f"(object.target.kind == '{kind}' && object.target.?apiVersion.orValue('') == '{version}')"
        for kind, version in user_commands.VERSIONS.items()
    )
    return {
        "target": _when(
            "!has(object.target) || object.target.?name.orValue('') == ''",
            "'target: a target is required'",
        ),
        "kind": _when(
            f"has(object.target) && !(object.target.kind in {kinds_known})",
            "'target.kind: this kind of object has no commands'",
        ),
        "version": _when(
            f"has(object.target) && object.target.kind in {kinds_known} && !({ours})",
            "'target.apiVersion: objects of this version have no commands'",
        ),
        "action": _when(
            f"has(object.target) && ({ours}) && !({known})",
            "'action: is not supported for this kind of object'",
        ),
    }


VARIABLES: dict[str, Rules] = {
    kinds.JOBS.plural: {
        "isNew": "request.operation == 'CREATE'",
        "tasks": "object.?spec.?tasks.orValue([])",
        "volumes": "object.?spec.?volumes.orValue([])",
        "dataSets": "object.?spec.?dataSets.orValue([])",
        "policies": "object.?spec.?policies.orValue([])",
    },
    kinds.QUEUES.plural: {
        "isNew": "request.operation == 'CREATE'",
        "capability": "object.?spec.?capability.orValue({})",
        "deserved": "object.?spec.?deserved.orValue({})",
        "guarantee": "object.?spec.?guarantee.?resource.orValue({})",
    },
    kinds.PODS.plural: {"annotations": "object.metadata.?annotations.orValue({})"},
    kinds.JOB_FLOWS.plural: {"flows": "object.?spec.?flows.orValue([])"},
    kinds.CRON_JOBS.plural: {"schedule": "object.?spec.?schedule.orValue('')"},
}
"""CEL variables that the rules of a kind share. Each is evaluated lazily and once."""

_QUEUE_SAYS = [
    *(f"?spec.?{name}" for name in ("parent", "capability", "deserved", "guarantee")),
    *(f"metadata.?annotations[?'{key}']" for key in (keys.HIERARCHY, keys.HIERARCHY_WEIGHTS)),
]
_SPEC_ONLY = (
    kinds.JOBS,
    kinds.JOB_FLOWS,
    kinds.CRON_JOBS,
    kinds.HYPER_NODES,
    kinds.ADVANCE_RESERVATIONS,
)
CONDITIONS: dict[str, str] = {
    plural: "oldObject == null || " + " || ".join(f"object.{it} != oldObject.{it}" for it in fields)
    for plural, fields in (
        (kinds.QUEUES.plural, _QUEUE_SAYS),
        *((kind.plural, ["?spec"]) for kind in _SPEC_ONLY),
    )
}
"""Plural of a kind -> the condition under which its rules are evaluated. So the labels and the
finalizers of an invalid object may be changed.
"""

RULES: dict[str, Rules] = {
    kinds.JOBS.plural: _of_jobs(),
    kinds.QUEUES.plural: _of_queues(),
    kinds.POD_GROUPS.plural: _of_pod_groups(),
    kinds.PODS.plural: _of_pods(),
    kinds.JOB_FLOWS.plural: _of_flows(),
    kinds.CRON_JOBS.plural: _of_cron_jobs(),
    kinds.HYPER_NODES.plural: {
        "members": _when(
            "object.?spec.?members.orValue([]).size() == 0",
            "'spec.members: at least one member is required'",
        )
    },
    kinds.ADVANCE_RESERVATIONS.plural: _of_reservations(),
    kinds.COMMANDS.plural: _of_commands(),
}
"""Plural of a kind -> its rules."""
