{{/* The connection to the log: every service has the same values and variables. */}}

{{- define "common.kafka.bootstrap" -}}
{{- $kafka := .root.Values.global.kafka -}}
{{- if and $kafka.trial $kafka.bootstrap -}}
{{- fail "global.kafka: trial installs a broker, and bootstrap names existing brokers: set one of them" -}}
{{- else if $kafka.trial -}}
{{ include "common.name" (dict "root" .root "service" "kafka") }}.{{ .root.Release.Namespace }}.svc:9092
{{- else if $kafka.bootstrap -}}
{{ join "," $kafka.bootstrap }}
{{- else -}}
{{- fail "global.kafka.bootstrap is empty: name your brokers, as in --set 'global.kafka.bootstrap={kafka.example:9092}', or set global.kafka.trial=true to install a single broker for a trial" -}}
{{- end -}}
{{- end -}}

{{- define "common.kafka.environment" -}}
{{- $kafka := .root.Values.global.kafka -}}
- name: STROM_KAFKA_BOOTSTRAP
  value: {{ include "common.kafka.bootstrap" . | quote }}
- name: STROM_KAFKA_CLUSTER_NAME
  value: {{ .root.Values.global.clusterName | quote }}
- name: STROM_KAFKA_REPLICATION_FACTOR
  value: {{ $kafka.trial | ternary 1 $kafka.replicationFactor | quote }}
- name: STROM_KAFKA_SECURITY
  value: {{ $kafka.security | quote }}
{{- if hasPrefix "SASL_" $kafka.security }}
{{- $secret := required "global.kafka.sasl.secret: name the Secret with user name and password" $kafka.sasl.secret }}
- name: STROM_KAFKA_SASL_MECHANISM
  value: {{ $kafka.sasl.mechanism | quote }}
- name: STROM_KAFKA_SASL_USERNAME
  valueFrom: {secretKeyRef: {name: {{ $secret | quote }}, key: {{ $kafka.sasl.usernameKey | quote }}}}
- name: STROM_KAFKA_SASL_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $secret | quote }}, key: {{ $kafka.sasl.passwordKey | quote }}}}
{{- end }}
{{- if and (hasSuffix "SSL" $kafka.security) $kafka.tls.secret }}
- name: STROM_KAFKA_TLS_CA_FILE
  value: /etc/stromboli/kafka/{{ $kafka.tls.caKey }}
{{- if $kafka.tls.clientCertificate }}
- name: STROM_KAFKA_TLS_CERTIFICATE_FILE
  value: /etc/stromboli/kafka/tls.crt
- name: STROM_KAFKA_TLS_KEY_FILE
  value: /etc/stromboli/kafka/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{- define "common.kafka.volumes" -}}
{{- $kafka := .root.Values.global.kafka -}}
{{- if and (hasSuffix "SSL" $kafka.security) $kafka.tls.secret }}
- name: kafka
  secret: {secretName: {{ $kafka.tls.secret | quote }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "common.kafka.mounts" -}}
{{- $kafka := .root.Values.global.kafka -}}
{{- if and (hasSuffix "SSL" $kafka.security) $kafka.tls.secret }}
- {name: kafka, mountPath: /etc/stromboli/kafka, readOnly: true}
{{- end }}
{{- end -}}
