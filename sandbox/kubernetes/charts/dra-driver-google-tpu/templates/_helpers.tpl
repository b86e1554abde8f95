{{- define "driver.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "driver.namespace" -}}
{{- if and (eq .Release.Namespace "default") (not .Values.namespaceOverride) (not .Values.allowDefaultNamespace) -}}
{{- fail "Running in the 'default' namespace is not recommended. Set 'allowDefaultNamespace: true' or choose another namespace" -}}
{{- end -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "driver.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s-service-account" (include "driver.fullname" .)) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "driver.selectorLabels" -}}
{{- if .Values.selectorLabelsOverride -}}
{{- toYaml .Values.selectorLabelsOverride -}}
{{- else -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- end -}}
