{{/* The names under which the API server calls the webhooks. */}}
{{- define "admission.certificateNames" -}}
{{- $name := include "common.name" (dict "root" . "service" "admission") -}}
{{- list (printf "%s.%s.svc" $name .Release.Namespace) | toJson -}}
{{- end -}}

{{/* Both webhook configurations have this name. */}}
{{- define "admission.configuration" -}}
{{- include "common.clusterName" (dict "root" . "service" "admission") | replace ":" "." -}}
{{- end -}}
