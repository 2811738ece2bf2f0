"""Chart templates that are generated from code: custom resource definitions, policies, webhooks."""

from typing import Any

import yaml

from stromboli.admission.webhooks import webhooks
from stromboli.shared.api import kinds
from stromboli.shared.jobspec import crds, policies
from stromboli.shared.jobspec.policies import pod_annotations

HEAD = "# Written by `python -m tools.charts`: edit {source} instead.\n"
NAMES, NAMESPACE = "@scheduler-names@", "@release-namespace@"
"""Placeholders without spaces, at which YAML would fold a long line."""
ACCOUNTS = "@service-accounts@"
RELEASE = "@release@"
WHERE = "https://release"


class _Writer(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def files() -> dict[str, str]:
    """Path relative to the repository -> content of the file."""
    definitions = {
        f"charts/base/crds/{document['spec']['names']['plural']}.yaml": HEAD.format(
            source="shared/src/stromboli/shared/jobspec/crds/source"
        )
        + _yaml(document)
        for document in crds.documents()
    }
    admission = "services/admission/chart/templates"
    return {
        **definitions,
        f"{admission}/policies.yaml": _policies(),
        f"{admission}/webhooks.yaml": _webhooks(),
        "charts/base/templates/pod-annotations.yaml": _pod_annotations(),
    }


def _yaml(*documents: Any) -> str:
    return yaml.dump_all(documents, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=100)


def _policies() -> str:
    """The policies: the one for pods always, the others only if they replace the webhooks."""
    plurals = [path.stem for path in policies.paths()]
    texts = {
        plural: _yaml(*policies.documents(plural, [NAMES], [ACCOUNTS]))
        .replace(f'"{NAMES}"', _NAMES)
        .replace(f'"{ACCOUNTS}"', _ACCOUNTS)
        for plural in plurals
    }
    if any(
        text.count("{{") != text.count(_NAMES) + text.count(_ACCOUNTS) for text in texts.values()
    ):
        raise ValueError("a policy has braces, which Helm would interpret")
    pods = texts.pop(kinds.PODS.plural)
    head = HEAD.format(source="shared/src/stromboli/shared/jobspec/policies/rules.py")
    others = "---\n".join(texts.values())
    return f"{head}{pods}{_IF_POLICIES}---\n{others}{_END}"


def _pod_annotations() -> str:
    """The policy that protects the annotations of decisions; the controller requires it to create
    pods with their nodes."""
    text = _yaml(*pod_annotations.documents())
    if "{{" in text:
        raise ValueError("the policy has braces, which Helm would interpret")
    source = "shared/src/stromboli/shared/jobspec/policies/pod_annotations.py"
    return f"{HEAD.format(source=source)}{text}"


def _webhooks() -> str:
    """Both webhook configurations, for the service of the release. The webhook for pods is included
    only if there are resource groups or queue gates. The service or cert-manager adds the CA later.
    """
    texts = []
    given = webhooks.configurations(
        WHERE,
        b"",
        resource_groups=True,
        scheduler_names=[NAMES],
        own_namespace=NAMESPACE,
        service_accounts=[ACCOUNTS],
    )
    for document in given:
        entries = document.pop("webhooks")
        document["metadata"] = RELEASE
        texts.append(_yaml(document).replace(f"metadata: '{RELEASE}'\n", _METADATA) + "webhooks:\n")
        for entry in entries:
            path = entry["clientConfig"]["url"].removeprefix(WHERE)
            entry["clientConfig"] = RELEASE
            text = _yaml([entry]).replace(f'"{NAMES}"', _NAMES)
            text = text.replace(f'"{NAMESPACE}"', _NAMESPACE).replace(f'"{ACCOUNTS}"', _ACCOUNTS)
            text = text.replace(f"clientConfig: '{RELEASE}'\n", _CLIENT.format(path=path))
            is_optional = entry["rules"][0]["resources"] == ["pods"]
            texts.append(f"{_IF_GROUPS}{text}{_END}" if is_optional else text)
        texts.append("---\n")
    head = HEAD.format(source="services/admission/src/stromboli/admission/webhooks/webhooks.py")
    return head + _IF_WEBHOOKS + _CONTEXT + "".join(texts[:-1]) + _END


_CONTEXT = '{{- $context := dict "root" . "service" "admission" }}\n'
_NAMES = '{{ .Values.global.schedulerNames | toJson | trimPrefix "[" | trimSuffix "]" }}'
_ACCOUNTS = '{{ include "admission.serviceAccounts" . }}'
_NAMESPACE = "{{ .Release.Namespace | quote }}"
_IF_POLICIES = '{{- if eq .Values.judgedBy "policies" }}\n'
_IF_WEBHOOKS = '{{- if eq .Values.judgedBy "webhooks" }}\n'
_IF_GROUPS = "{{- if or .Values.resourceGroups .Values.queueGates }}\n"
_END = "{{- end }}\n"
_METADATA = """\
metadata:
  name: {{ include "admission.configuration" . }}
  labels:
    {{- include "common.labels" $context | nindent 4 }}
  {{- if eq .Values.certificate.by "cert-manager" }}
  annotations:
    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "common.name" $context }}
  {{- end }}
"""
_CLIENT = """\
clientConfig:
    service:
      name: {{{{ include "common.name" $context }}}}
      namespace: {{{{ .Release.Namespace }}}}
      path: {path}
      port: 443
"""
