{{/* The same in a release of the monitor alone and in one of everything. */}}
{{- define "monitor.agentName" -}}
{{ include "common.name" (dict "root" . "service" "monitor") }}-agent
{{- end -}}

{{- define "monitor.agentMetadata" -}}
name: {{ include "monitor.agentName" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "common.labels" (dict "root" . "service" "monitor-agent") | nindent 2 }}
{{- end -}}
