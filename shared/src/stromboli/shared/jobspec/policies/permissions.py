"""The permissions of queues and priority classes, and the submitter's name, in CEL.

``validation.permissions`` defines their meaning. A policy is evaluated once for each Queue or
PriorityClass, which is its parameter. In an update only added references are checked. Our services,
identified by their user names, write on behalf of the submitter that the object records.
"""

import json
from collections.abc import Sequence
from typing import Any

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind

Document = dict[str, Any]
_AT = {
    kinds.JOBS.plural: "?spec",
    kinds.POD_GROUPS.plural: "?spec",
    kinds.CRON_JOBS.plural: "?spec.?jobTemplate.?spec",
}
"""The fields in which an object names its queue and its priority class."""
USING = tuple(_AT)
SUBMITTED = (*_AT, kinds.JOB_FLOWS.plural)
"""Kinds whose submitter is recorded."""
_MAKERS = (kinds.CRON_JOBS.plural, kinds.JOB_FLOWS.plural)


def _annotation(of: str, key: str) -> str:
    return f"{of}.?metadata.?annotations[?'{key}'].orValue('')"


def _names(text: str) -> str:
    """The names in an annotation: one per line, or one line separated by commas."""
    return (
        f"({text}.contains('\\n') ? {text}.split('\\n') : {text}.split(','))"
        ".map(n, n.trim()).filter(n, n != '')"
    )


def _is_service(accounts: Sequence[str]) -> str:
    return f"request.userInfo.username in {json.dumps(list(accounts))}"


def _used(plural: str, kind: Kind[Any], of: str) -> str:
    """The CEL expression for the list of queues or priority classes that an object names."""
    at = f"{of}.{_AT[plural]}"
    if kind == kinds.QUEUES:
        default = "'default'" if plural != kinds.POD_GROUPS.plural else "''"
        queue = f"{at}.?queue.orValue('')"
        return f"[{queue} == '' ? {default} : {queue}]"
    own = f"[{at}.?priorityClassName.orValue('')]"
    if plural == kinds.POD_GROUPS.plural:
        return own
    return (
        f"{own} + {at}.?tasks.orValue([]).map(t, t.?template.?spec.?priorityClassName.orValue(''))"
    )


def variables(plural: str, kind: Kind[Any], accounts: Sequence[str]) -> list[Document]:
    """The CEL variables that determine whether an object may use the parameter."""
    lists = {
        "namespaces": keys.ALLOWED_NAMESPACES,
        "users": keys.ALLOWED_USERS,
        "groups": keys.ALLOWED_GROUPS,
    }
    expressions = {
        "isService": _is_service(accounts),
        "user": f"variables.isService ? {_annotation('object', keys.USER)}"
        " : request.userInfo.username",
        "memberOf": f"variables.isService ? {_annotation('object', keys.USER_GROUPS)}.split('\\n')"
        " : request.userInfo.?groups.orValue([])",
        "isRestricted": f"{json.dumps(list(lists.values()))}"
        ".exists(k, k in params.?metadata.?annotations.orValue({}))",
        **{word: _names(_annotation("params", key)) for word, key in lists.items()},
        "isAllowed": "!variables.isRestricted"
        " || object.?metadata.?namespace.orValue('') in variables.namespaces"
        " || variables.user in variables.users"
        " || variables.memberOf.exists(g, g in variables.groups)",
        "used": _used(plural, kind, "object"),
        "before": f"oldObject == null ? [] : {_used(plural, kind, 'oldObject')}",
    }
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def validation(plural: str, kind: Kind[Any]) -> Document:
    """The rule that an object may refer to the parameter only with permission."""
    word, field = ("queue", "queue") if kind == kinds.QUEUES else ("priority class", "priority")
    path = f"{_AT[plural].replace('?', '')}.{'queue' if field == 'queue' else 'priorityClassName'}"
    return {
        "expression": "!(params.metadata.name in variables.used)"
        " || params.metadata.name in variables.before || variables.isAllowed",
        "messageExpression": f"'{path}: {word} ' + params.metadata.name + ' is not open to user '"
        " + variables.user + ' in namespace ' + object.?metadata.?namespace.orValue('')",
        "reason": "Forbidden",
    }


def of_submitter(plural: str, accounts: Sequence[str]) -> tuple[list[Document], Document]:
    """Variables and the validation that prevent a forged submitter: without webhooks no submitter
    is recorded, and a client may write only its own name and groups.
    """
    user, groups = keys.USER, keys.USER_GROUPS
    same = " && ".join(
        f"{_annotation('object', key)} == {_annotation('oldObject', key)}" for key in (user, groups)
    )
    own = (
        f"{_annotation('object', user)} in ['', request.userInfo.username]"
        f" && {_names(_annotation('object', groups))}"
        ".all(g, g in request.userInfo.?groups.orValue([]))"
    )
    fixed = plural not in _MAKERS
    is_same = f"oldObject != null && {same}"
    if not fixed:  # a user who changes the spec becomes the submitter
        is_same += " && object.?spec == oldObject.?spec"
    expression = "variables.isService || variables.isSame"
    expression += " || (oldObject == null && variables.isOwn)" if fixed else " || variables.isOwn"
    cel_variables = [
        {"name": "isService", "expression": _is_service(accounts)},
        {"name": "isSame", "expression": is_same},
        {"name": "isOwn", "expression": own},
    ]
    return cel_variables, {
        "expression": expression,
        "message": f"metadata.annotations[{user}]: records who submitted the object; leave it out",
        "reason": "Invalid",
    }
