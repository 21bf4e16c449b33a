{{/* Names are fixed: one Muster per cluster, and the programs know the namespace. */}}
{{- define "muster.namespace" -}}
muster-system
{{- end }}

{{- define "muster.commonLabels" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Labels of one component: (dict "root" $ "component" "agent") */}}
{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* What selectors match; it must never change between versions. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "muster.image" -}}
{{- $repository := .Values.image.repository | required "Set image.repository to where your image of Muster is: no public one exists yet (docs/install.md says how to build it)." -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* User name of a service account as the API server sees it: (dict "root" $ "component" "agent") */}}
{{- define "muster.user" -}}
system:serviceaccount:{{ include "muster.namespace" .root }}:muster-{{ .component }}
{{- end }}
