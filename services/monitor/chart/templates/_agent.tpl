{{/* The same name in a release of only the monitor and in a release of all services. */}}
{{- define "monitor.agentName" -}}
{{ include "common.name" (dict "root" . "service" "monitor") }}-agent
{{- end -}}

{{- define "monitor.agentMetadata" -}}
name: {{ include "monitor.agentName" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "common.labels" (dict "root" . "service" "monitor-agent") | nindent 2 }}
{{- end -}}
