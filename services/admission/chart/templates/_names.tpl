{{/* The host names under which the API server calls the webhooks; with REST, also the names under
     which clients call it: inside the cluster, and through a port-forward. */}}
{{- define "admission.certificateNames" -}}
{{- $name := include "common.name" (dict "root" . "service" "admission") -}}
{{- $inside := printf "%s.%s" $name .Release.Namespace -}}
{{- $names := list (printf "%s.svc" $inside) -}}
{{- if .Values.rest.enabled -}}
{{- $names = concat $names (list $inside $name "localhost") -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* The name of both webhook configurations. */}}
{{- define "admission.configuration" -}}
{{- include "common.clusterName" (dict "root" . "service" "admission") | replace ":" "." -}}
{{- end -}}

{{/* The commands that connect a client to REST, for the notes. */}}
{{- define "admission.reach" -}}
{{- $name := include "common.name" (dict "root" . "service" "admission") -}}
REST: https://{{ $name }}.{{ .Release.Namespace }}:8480 inside the cluster; from your machine

  kubectl -n {{ .Release.Namespace }} port-forward service/{{ $name }} 8480
  kubectl get validatingwebhookconfigurations {{ include "admission.configuration" . }} \
    -o 'jsonpath={.webhooks[0].clientConfig.caBundle}' | base64 --decode > stromboli.crt
  export STROM_SERVER=https://localhost:8480 STROM_CA_FILE=stromboli.crt
  export STROM_TOKEN=$(kubectl create token ACCOUNT -n NAMESPACE --audience stromboli)
  strom job list -n NAMESPACE

The rights that ACCOUNT needs are in docs/accounts.md.
{{- end -}}

{{/* The user names of the services that write objects, as items of a JSON list. */}}
{{- define "admission.serviceAccounts" -}}
{{- $prefix := printf "system:serviceaccount:%s" .Release.Namespace -}}
{{- $own := printf "%s:%s" $prefix (include "common.account" (dict "root" . "service" "admission") | trim) -}}
{{- $controller := .Values.controllerAccount | default (printf "%s:%s" $prefix (include "common.name" (dict "root" . "service" "controller"))) -}}
{{- list $own $controller | toJson | trimPrefix "[" | trimSuffix "]" -}}
{{- end -}}
