{{- define "diskimage-controller.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The release's name is not part of it: a cluster has one installation. */}}
{{- define "diskimage-controller.fullname" -}}
{{- .Values.fullnameOverride | default (include "diskimage-controller.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "diskimage-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "diskimage-controller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "diskimage-controller.labels" -}}
{{ include "diskimage-controller.selectorLabels" . }}
app.kubernetes.io/component: controller
app.kubernetes.io/part-of: otctl
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "diskimage-controller.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "diskimage-controller.fullname" .) }}
{{- end }}

{{- define "diskimage-controller.policyNamespace" -}}
{{- .Values.policy.namespace | default .Release.Namespace }}
{{- end }}

{{- /* An image by digest, else by tag, else by the chart's version: a list of the values and the context. */}}
{{- define "diskimage-controller.image" -}}
{{- $image := index . 0 }}
{{- $context := index . 1 }}
{{- if $image.digest -}}
{{ printf "%s@%s" $image.repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $image.repository ($image.tag | default $context.Chart.AppVersion) }}
{{- end }}
{{- end }}
