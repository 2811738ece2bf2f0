{{/* The port of the database, which the network policy opens. */}}
{{- define "history.databasePort" -}}
{{- $host := (urlParse .Values.database.url).host -}}
{{- $last := splitList ":" $host | last -}}
{{- if regexMatch "^[0-9]+$" $last -}}{{- $last -}}{{- else -}}5432{{- end -}}
{{- end -}}
