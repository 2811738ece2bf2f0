{{/* A service's Deployment. Takes root, service, kubernetes (whether it talks to the API server),
     ports (name -> number, with health), and where it has more: environment, volumes, mounts and
     annotations, each as text; readyPath, if a pod may serve before the whole service is ready;
     and withoutLog for a service that uses neither the log nor leases. */}}
{{- define "common.deployment" -}}
{{- $values := .root.Values -}}
{{- $prefix := printf "STROM_%s" (upper .service) -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "common.metadata" . | nindent 2 }}
spec:
  replicas: {{ $values.replicas }}
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- include "common.selector" . | nindent 6 }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  template:
    metadata:
      labels:
        {{- include "common.labels" . | nindent 8 }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .service }}
        {{- with .annotations }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "common.account" . }}
      automountServiceAccountToken: {{ .kubernetes }}
      {{- with $values.global.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.global.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      # Not Stromboli's scheduler: the services must not wait for themselves, and our sessions must
      # never evict them.
      schedulerName: default-scheduler
      terminationGracePeriodSeconds: 20
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: {{ .service }}
          image: {{ include "common.image" . | quote }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          env:
            {{- if not .withoutLog }}
            - name: {{ $prefix }}_INSTANCE
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: STROM_LEASE_IDENTITY
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: STROM_LEASE_NAMESPACE
              value: {{ .root.Release.Namespace | quote }}
            {{- include "common.kafka.environment" . | nindent 12 }}
            {{- end }}
            {{- with .environment }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- range $name, $value := $values.settings }}
            - name: {{ $prefix }}_{{ upper $name }}
              value: {{ include "common.setting" $value | quote }}
            {{- end }}
            {{- with $values.global.telemetry.otlpEndpoint }}
            - name: OTEL_EXPORTER_OTLP_ENDPOINT
              value: {{ . | quote }}
            {{- end }}
            {{- with $values.environment }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- range $name, $number := .ports }}
            - {name: {{ $name }}, containerPort: {{ $number }}}
            {{- end }}
          # Live from the start; ready once the log is materialized and, if the service uses it, the
          # API server answers.
          startupProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: {{ .readyPath | default "/readyz" | quote }}, port: health}
            periodSeconds: 3
            timeoutSeconds: 3
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if not .withoutLog }}
            {{- with include "common.kafka.mounts" . }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- end }}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 256Mi}
        {{- if not .withoutLog }}
        {{- with include "common.kafka.volumes" . }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- end }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
      # Leader and standby on different nodes, if there are two.
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "common.selector" . | nindent 14 }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}
