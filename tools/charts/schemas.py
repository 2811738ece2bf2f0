"""The JSON Schema of each chart's values. Helm rejects unknown values and names them.

Names and types of settings are derived from the services' settings Structs, except for settings
that the chart itself sets.
"""

import json
import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from stromboli.admission.settings import Settings as AdmissionSettings
from stromboli.console.settings import Settings as ConsoleSettings
from stromboli.controller.settings import Settings as ControllerSettings
from stromboli.history.settings import Settings as HistorySettings
from stromboli.monitor.agent.settings import AgentSettings
from stromboli.monitor.data_cache.settings import Settings as DataCacheSettings
from stromboli.monitor.settings import Settings as MonitorSettings
from stromboli.scheduler.settings import Settings as SchedulerSettings

Schema = dict[str, Any]
SETTINGS: Mapping[str, type[msgspec.Struct]] = types.MappingProxyType(
    {
        "admission": AdmissionSettings,
        "console": ConsoleSettings,
        "controller": ControllerSettings,
        "history": HistorySettings,
        "monitor": MonitorSettings,
        "scheduler": SchedulerSettings,
    }
)
OWN = frozenset(
    {
        "instance", "scheduler_names", "health_host", "health_port", "rest_host", "rest_port",
        "rest_open_to_all", "accounts", "impersonate",
        "webhook_host", "webhook_port", "certificate_file", "key_file", "certificate_secret",
        "certificate_names", "webhook_configuration", "resource_groups_file", "configuration",
        "rival_leases",
        "agents_account", "agents_audience", "agents_host", "agents_port",
        "agents_certificate_file", "agents_key_file", "node", "monitor", "token_file", "ca_file",
        "sysfs", "kubelet",
        "root", "capacity_bytes", "allowed_origins",
        "database", "database_password", "queries_host", "queries_port", "queries_token_file",
        "history_url", "history_token_file",
        "server", "host", "port", "hosts", "behind_https", "open_to_all",
        "oidc_issuer", "oidc_client_id", "oidc_client_secret_file", "oidc_scopes",
        "oidc_required_claims", "oidc_ca_file", "oidc_name",
    }
)  # fmt: skip
"""Settings that the chart derives from other values or from the pod."""
SEPARATE = frozenset({"console", "history"})
"""Services that the umbrella chart leaves out, since they need components that it does not
contain, or REST, which is off by default."""
_SIMPLE: Mapping[Any, Schema] = types.MappingProxyType(
    {
        str: {"type": "string"},
        int: {"type": "integer"},
        float: {"type": "number"},
        bool: {"type": "boolean"},
    }
)


def files() -> dict[str, str]:
    """Path relative to the repository -> content of the file."""
    schemas = {
        **{f"services/{service}/chart": _service(service) for service in SETTINGS},
        "charts/stromboli": _umbrella(),
        "charts/base": _object(
            _PARENT | {"global": _object({"priorityClassName": _NAME}, more=True)}
        ),
        "charts/kafka": _kafka(),
    }
    return {
        f"{chart}/values.schema.json": json.dumps(
            {"$schema": "http://json-schema.org/draft-07/schema#", **schema}, indent=2
        )
        + "\n"
        for chart, schema in schemas.items()
    }


def _object(properties: Schema, *, more: bool = False, **rest: Any) -> Schema:
    """The schema of an object with these properties and, unless ``more``, no others."""
    return {
        "type": "object",
        "properties": properties,
        **({} if more else {"additionalProperties": False}),
        **rest,
    }


def _map(of: Schema) -> Schema:
    return {"type": "object", "additionalProperties": of}


def _list(of: Schema, **rest: Any) -> Schema:
    return {"type": "array", "items": of, **rest}


_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_ANY: Schema = {"type": "object"}
_NAME: Schema = {"type": "string", "pattern": r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"}
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
_PULL: Schema = {"enum": ["Always", "IfNotPresent", "Never"]}
_DIGEST: Schema = {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}
_QUANTITY: Schema = {"type": ["string", "number"], "pattern": r"^[0-9.]+([EPTGMk]i?|m)?$"}
_RESOURCES = _object({"requests": _map(_QUANTITY), "limits": _map(_QUANTITY)}, more=True)
_ON = _object({"enabled": _FLAG})
_PARENT: Schema = {"enabled": _FLAG}
"""The schema of the values that a parent chart may set."""

GLOBAL = _object(
    {
        "clusterName": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"},
        "schedulerNames": _list({**_NAME, "minLength": 1}, minItems=1),
        "image": _object(
            {"registry": _TEXT, "tag": _TEXT, "pullSecrets": _list(_object({"name": _NAME}))}
        ),
        "kafka": _object(
            {
                "bootstrap": _list({"type": "string", "pattern": r"^[^\s,:]+:[0-9]{1,5}$"}),
                "brokerPorts": _list(_PORT),
                "replicationFactor": {"type": "integer", "minimum": 1, "maximum": 15},
                "trial": _FLAG,
                "security": {"enum": ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]},
                "sasl": _object(
                    {
                        "mechanism": {"enum": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]},
                        "secret": _NAME,
                        "usernameKey": _TEXT,
                        "passwordKey": _TEXT,
                    }
                ),
                "tls": _object({"secret": _NAME, "caKey": _TEXT, "clientCertificate": _FLAG}),
            }
        ),
        "priorityClassName": _NAME,
        "apiServerPorts": _list(_PORT, minItems=1),
        "telemetry": _object(
            {"otlpEndpoint": {"type": "string", "pattern": "^(https?://[^/:]+:[0-9]+.*)?$"}}
        ),
    }
)
_COMMON: Schema = {
    "replicas": {"type": "integer", "minimum": 0, "maximum": 5},
    "image": _object({"repository": _TEXT, "tag": _TEXT, "digest": _DIGEST, "pullPolicy": _PULL}),
    "environment": _list(
        _object({"name": _TEXT, "value": _TEXT, "valueFrom": _ANY}, required=["name"])
    ),
    "resources": _RESOURCES,
    "serviceAccount": _object({"create": _FLAG, "name": _NAME, "annotations": _map(_TEXT)}),
    "podDisruptionBudget": _ON,
    "networkPolicy": _object({"enabled": _FLAG, "metricsFrom": _list(_ANY), "egress": _list(_ANY)}),
    "serviceMonitor": _object(
        {
            "enabled": _FLAG,
            "interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
            "labels": _map(_TEXT),
        }
    ),
    "podAnnotations": _map(_TEXT),
    "podLabels": _map(_TEXT),
    "nodeSelector": _map(_TEXT),
    "tolerations": _list(_ANY),
    "affinity": _ANY,
    "global": GLOBAL,
    "common": _ANY,
}


def _service(service: str) -> Schema:
    settings = _object(dict(_settings(SETTINGS[service])))
    return _object(_COMMON | {"settings": settings} | _OF_ONE[service])


def _settings(struct: type[msgspec.Struct]) -> typing.Iterator[tuple[str, Schema]]:
    for field in msgspec.structs.fields(struct):
        if field.name in OWN or (
            isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        ):
            continue
        yield field.name, _type(field.type)


def _type(type_: Any) -> Schema:
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin is tuple:
        return _list(_type(arguments[0]))
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    return dict(_SIMPLE[type_])


_OF_ONE: Mapping[str, Schema] = types.MappingProxyType(
    {
        "admission": {
            "certificate": _object({"by": {"enum": ["own", "cert-manager"]}}),
            "controllerAccount": _TEXT,
            "history": _object(
                {
                    "url": {"type": "string", "pattern": "^(https?://[^/:]+:[0-9]+)?$"},
                    "secret": _NAME,
                    "tokenKey": _TEXT,
                }
            ),
            "judgedBy": {"enum": ["webhooks", "policies"]},
            "rest": _object({"enabled": _FLAG, "impersonate": _FLAG, "from": _list(_ANY)}),
            "queueGates": _FLAG,
            "resourceGroups": _list(_object({"resourceGroup": _TEXT}, more=True)),
        },
        "console": {
            "server": _object(
                {
                    "url": {"type": "string", "pattern": "^(https://[^/:]+:[0-9]+)?$"},
                    "caSecret": _NAME,
                    "caKey": _TEXT,
                }
            ),
            "pages": _object(
                {
                    "hosts": _list({**_NAME, "minLength": 1}),
                    "tlsSecret": _NAME,
                    "behindHttps": _FLAG,
                    "from": _list(_ANY),
                    "oidc": _object(
                        {
                            "issuer": {"type": "string", "pattern": "^(https://[^/\\s]+.*)?$"},
                            "clientId": _TEXT,
                            "secret": _NAME,
                            "secretKey": _TEXT,
                            "caSecret": _NAME,
                            "caKey": _TEXT,
                            "name": _TEXT,
                            "scopes": _list(_TEXT),
                            "requiredClaims": _list(_TEXT),
                            "port": _PORT,
                        }
                    ),
                }
            ),
        },
        "controller": {"ownerReferencesPermissionEnforcement": _FLAG},
        "history": {
            "database": _object(
                {
                    "url": {"type": "string", "pattern": "^(postgresql://[^\\s]+)?$"},
                    "secret": _NAME,
                    "passwordKey": _TEXT,
                }
            ),
            "queries": _object({"secret": _NAME, "tokenKey": _TEXT, "from": _list(_ANY)}),
            "notifications": _object({"secret": _NAME, "key": _TEXT, "ports": _list(_PORT)}),
        },
        "monitor": {
            "rivalLeases": _list({"type": "string", "pattern": "^[^/=]+/[^/=]+=[^/=]+$"}),
            "agent": _object(
                {
                    "enabled": _FLAG,
                    "resources": _RESOURCES,
                    "kubeletFolder": {"type": "string", "pattern": "^/"},
                    "kubeletConfig": {"type": "string", "pattern": "^(/.*)?$"},
                    "stateFiles": _FLAG,
                    "runtimeClassName": _NAME,
                    "tlsSecret": _NAME,
                    "settings": _object(dict(_settings(AgentSettings))),
                    "nodeSelector": _map(_TEXT),
                    "tolerations": _list(_ANY),
                }
            ),
            "dataCache": _object(
                {
                    "enabled": _FLAG,
                    "folder": {"type": "string", "pattern": "^/"},
                    "capacityGiB": {"type": "integer", "minimum": 1},
                    "allowedOrigins": _list({"type": "string", "pattern": "^[a-z0-9.+-]+://"}),
                    "credentialsSecret": _NAME,
                    "volumes": _list(_ANY),
                    "volumeMounts": _list(_ANY),
                    "resources": _RESOURCES,
                    "settings": _object(dict(_settings(DataCacheSettings))),
                    "nodeSelector": _map(_TEXT),
                    "tolerations": _list(_ANY),
                }
            ),
        },
        "scheduler": {"configuration": {"type": "string", "minLength": 1}},
    }
)


def _umbrella() -> Schema:
    """The schema of the umbrella chart. The values of a service are validated by the service's
    chart."""
    services = dict.fromkeys((it for it in SETTINGS if it not in SEPARATE), _ANY)
    return _object({**services, "base": _ANY, "kafka": _ANY, "global": GLOBAL})


def _kafka() -> Schema:
    return _object(
        {
            "image": _object(
                {"repository": _TEXT, "tag": _TEXT, "digest": _DIGEST, "pullPolicy": _PULL}
            ),
            "storage": _object({"size": _QUANTITY, "className": _TEXT}),
            "resources": _RESOURCES,
            "networkPolicy": _ON,
            "global": _ANY,
            "common": _ANY,
        }
    )
