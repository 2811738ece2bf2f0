{{/* The objects beside a service's Deployment, the same for all services: account, disruption budget,
     Service, network policy, monitoring, rights. Takes the arguments of common.deployment. */}}

{{- define "common.serviceAccount" -}}
{{- if .root.Values.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "common.account" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "common.labels" . | nindent 4 }}
  {{- with .root.Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- end -}}

{{/* One replica may always be evicted, so that nodes can be drained even with a single replica. */}}
{{- define "common.disruptionBudget" -}}
{{- if .root.Values.podDisruptionBudget.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "common.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "common.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{/* For monitoring only: the service has no other clients. */}}
{{- define "common.headlessService" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "common.metadata" . | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "common.selector" . | nindent 4 }}
  ports:
    - {name: health, port: {{ .ports.health }}, targetPort: health}
{{- end -}}

{{- define "common.serviceMonitor" -}}
{{- if .root.Values.serviceMonitor.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "common.metadata" . | nindent 2 }}
    {{- with .root.Values.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "common.selector" . | nindent 6 }}
  endpoints:
    - port: health
      path: /metrics
      interval: {{ .root.Values.serviceMonitor.interval }}
{{- end }}
{{- end -}}

{{/* Ingress: health and metrics from inside the cluster, and `ingress`. Egress: DNS, the log unless
     withoutLog, the API server if `kubernetes`, traces, and `egress` of the values. */}}
{{- define "common.networkPolicy" -}}
{{- $network := .root.Values.networkPolicy -}}
{{- if $network.enabled }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "common.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "common.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports: [{protocol: TCP, port: {{ .ports.health }}}]
      from:
        {{- toYaml $network.metricsFrom | nindent 8 }}
    {{- with .ingress }}
    {{- . | nindent 4 }}
    {{- end }}
  egress:
    - ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
    {{- if not .withoutLog }}
    - ports:
        {{- range splitList "," (include "common.kafka.bootstrap" .) | uniq }}
        - {protocol: TCP, port: {{ splitList ":" . | last }}}
        {{- end }}
        {{- range .root.Values.global.kafka.brokerPorts }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- end }}
    {{- if .kubernetes }}
    # The API server is not a pod, so only ports can be named: the port of its Service and its own.
    - ports:
        {{- range .root.Values.global.apiServerPorts }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- end }}
    {{- with .root.Values.global.telemetry.otlpEndpoint }}
    - ports: [{protocol: TCP, port: {{ (urlParse .).host | splitList ":" | last }}}]
    {{- end }}
    {{- with .egress }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $network.egress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}

{{/* A ClusterRole of `rules` and its binding to the service's account. */}}
{{- define "common.clusterRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "common.clusterName" . | quote }}
  labels:
    {{- include "common.labels" . | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "common.clusterName" . | quote }}
  labels:
    {{- include "common.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ include "common.clusterName" . | quote }}}
subjects:
  - {kind: ServiceAccount, name: {{ include "common.account" . | quote }}, namespace: {{ .root.Release.Namespace | quote }}}
{{- end -}}

{{/* A Role in the release's namespace, and its binding. */}}
{{- define "common.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "common.metadata" . | nindent 2 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "common.metadata" . | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ include "common.name" . | quote }}}
subjects:
  - {kind: ServiceAccount, name: {{ include "common.account" . | quote }}, namespace: {{ .root.Release.Namespace | quote }}}
{{- end -}}

{{/* The Lease of the leader, in the release's namespace. A right to create cannot be restricted to a
     name. */}}
{{- define "common.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ printf "stromboli-%s-%s" .root.Values.global.clusterName .service | quote }}]
  verbs: [get, patch]
{{- end -}}
