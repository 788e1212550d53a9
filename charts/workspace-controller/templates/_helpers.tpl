{{- define "workspace-controller.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The release's name is not part of it: a cluster has one installation. */}}
{{- define "workspace-controller.fullname" -}}
{{- .Values.fullnameOverride | default (include "workspace-controller.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "workspace-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "workspace-controller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "workspace-controller.labels" -}}
{{ include "workspace-controller.selectorLabels" . }}
app.kubernetes.io/component: controller
app.kubernetes.io/part-of: otctl
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "workspace-controller.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "workspace-controller.fullname" .) }}
{{- end }}

{{- define "workspace-controller.policyNamespace" -}}
{{- .Values.policy.namespace | default .Release.Namespace }}
{{- end }}

{{- /* By digest, else by tag, else by the chart's version. */}}
{{- define "workspace-controller.image" -}}
{{- with .Values.image }}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The namespaces in which Workspaces may be made, each once, as JSON. The controller refuses the same ones. */}}
{{- define "workspace-controller.namespaces" -}}
{{- $namespaces := append .Values.namespaces .Values.defaultNamespace | uniq | sortAlpha }}
{{- range $namespaces }}
{{- if eq . $.Release.Namespace }}
{{- fail (printf "namespaces and defaultNamespace: %s is the namespace of the installation, in which no Workspace is made; name another one" .) }}
{{- end }}
{{- if hasPrefix "kube-" . }}
{{- fail (printf "namespaces and defaultNamespace: %s belongs to Kubernetes, and no Workspace is made there; name another one" .) }}
{{- end }}
{{- end }}
{{- toJson $namespaces }}
{{- end }}

{{- /* Who the controller is to the API server. */}}
{{- define "workspace-controller.user" -}}
{{ printf "system:serviceaccount:%s:%s" .Release.Namespace (include "workspace-controller.serviceAccountName" .) }}
{{- end }}

{{- /* Who lets Workspaces go before the release is removed. */}}
{{- define "workspace-controller.releaseUser" -}}
{{ printf "system:serviceaccount:%s:%s-release" .Release.Namespace (include "workspace-controller.fullname" .) }}
{{- end }}

{{- /* What runs before the release is removed. Kept when it has failed, so that people see why; the next try replaces it. */}}
{{- define "workspace-controller.releaseHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
helm.sh/hook-weight: {{ . | quote }}
{{- end }}
