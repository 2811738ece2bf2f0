{{/* Names and labels. Every template here takes a dict: root, and the service's name. */}}

{{/* <release>-<service>, or the release's name if it already contains the service: one release of
     all services and one release for each give objects the same names. */}}
{{- define "common.name" -}}
{{- $release := .root.Release.Name -}}
{{- if or (eq $release .service) (hasSuffix (printf "-%s" .service) $release) -}}
{{- $release | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (trunc (int (sub 52 (len .service))) $release | trimSuffix "-") .service -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods of a service: they must never change. */}}
{{- define "common.selector" -}}
app.kubernetes.io/name: stromboli-{{ .service }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "common.labels" -}}
{{ include "common.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: stromboli
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "common.metadata" -}}
name: {{ include "common.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "common.labels" . | nindent 2 }}
{{- end -}}

{{/* Names of cluster-scoped objects contain the namespace, so that releases never share one. */}}
{{- define "common.clusterName" -}}
{{- printf "%s:%s" .root.Release.Namespace (include "common.name" .) -}}
{{- end -}}

{{- define "common.account" -}}
{{- $account := .root.Values.serviceAccount -}}
{{- if $account.create }}{{ $account.name | default (include "common.name" .) }}
{{- else }}{{ required "serviceAccount.create is false: say in serviceAccount.name which one to use" $account.name }}
{{- end -}}
{{- end -}}

{{- define "common.image" -}}
{{- $image := .root.Values.image -}}
{{- with .root.Values.global.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}
{{- else }}:{{ $image.tag | default .root.Values.global.image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The scheduler names of our objects, for the services that need them. */}}
{{- define "common.schedulerNames" -}}
- name: STROM_{{ upper .service }}_SCHEDULER_NAMES
  value: {{ join "," .root.Values.global.schedulerNames | quote }}
{{- end -}}

{{/* A value as a service reads it from its environment: lists separated by commas, whole numbers in
     full, which Helm itself would write as 1e+06. */}}
{{- define "common.setting" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ . }}
{{- end -}}
{{- end -}}
