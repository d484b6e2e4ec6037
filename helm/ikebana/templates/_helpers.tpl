{{- define "ikebana.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Short enough for the pod's name, and for the label that a StatefulSet makes of it. */}}
{{- define "ikebana.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "ikebana.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "ikebana.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ikebana.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ikebana.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ikebana.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "ikebana.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Name, namespace, labels and annotations: dict "root" $ "name" NAME "component" NAME "annotations" MAP. */}}
{{- define "ikebana.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "ikebana.labels" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ikebana.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "ikebana.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "ikebana.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "ikebana.executorServiceAccountName" -}}
{{- if .Values.executorServiceAccount.create -}}
{{ .Values.executorServiceAccount.name | default (printf "%s-executor" (include "ikebana.fullname" .)) }}
{{- else -}}
{{ .Values.executorServiceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- /* What `ikebana run` is given: the mounted file, or a name in Python. */}}
{{- define "ikebana.pipelineArgument" -}}
{{ .Values.pipeline.module | default (printf "/etc/ikebana/pipeline/%s" (include "ikebana.pipelineKey" .)) }}
{{- end }}

{{- /* Whether the pipeline file is in SQL: it begins with CREATE, behind comments. */}}
{{- define "ikebana.pipelineIsSql" -}}
{{- if regexMatch `(?is)\A(\s+|--[^\n]*\n|/\*.*?\*/)*CREATE\s` .Values.pipeline.file }}true{{ end }}
{{- end }}

{{- /* The name of the pipeline file: by its ending, ikebana tells SQL from YAML. */}}
{{- define "ikebana.pipelineKey" -}}
{{ .Values.pipeline.key | default (ternary "pipeline.sql" "pipeline.yaml" (eq "true" (include "ikebana.pipelineIsSql" .))) }}
{{- end }}

{{- /* What templates know of the pipeline file, for fromYaml: all of it in YAML, of SQL its name. */}}
{{- define "ikebana.pipelineYaml" -}}
{{- if include "ikebana.pipelineIsSql" . }}
{{- $named := regexFind `(?i)\bCREATE\s+PIPELINE\s+("[^"]+"|[\w.-]+)` .Values.pipeline.file }}
{{- dict "pipeline" (regexReplaceAll `(?is)^CREATE\s+PIPELINE\s+` $named "" | trimAll "\"") | toYaml }}
{{- else }}
{{- .Values.pipeline.file }}
{{- end }}
{{- end }}

{{- /* The sinks that have pods, for fromYaml: what each has of its own, by name. */}}
{{- define "ikebana.sinks" -}}
{{- $sinks := dict }}
{{- if .Values.deliver.enabled }}
{{- $file := include "ikebana.pipelineYaml" . | fromYaml }}
{{- $given := .Values.deliver.sinks }}
{{- range list $file.deliver .Values.settings.deliver $given }}
{{- if kindIs "map" . }}
{{- range $name, $_ := . }}
{{- $_ := set $sinks $name (get $given $name | default dict) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $sinks }}
{{- end }}

{{- /* The name of a sink's resources, and of its label: dict "root" $ "sink" NAME. */}}
{{- define "ikebana.sinkLabel" -}}
{{ regexReplaceAll "[^a-z0-9]+" (lower .sink) "-" | trimAll "-" | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "ikebana.sinkName" -}}
{{ printf "%s-sink-%s" (include "ikebana.fullname" .root) (include "ikebana.sinkLabel" .) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ikebana.pipelineConfigMap" -}}
{{ .Values.pipeline.existingConfigMap | default (printf "%s-pipeline" (include "ikebana.fullname" .)) }}
{{- end }}

{{- define "ikebana.claim" -}}
{{ .Values.checkpoint.volume.existingClaim | default (printf "%s-checkpoint" (include "ikebana.fullname" .)) }}
{{- end }}

{{- define "ikebana.labelSelector" -}}
app.kubernetes.io/instance={{ .Release.Name }},app.kubernetes.io/component=executor
{{- end }}

{{- define "ikebana.serveName" -}}
{{ printf "%s-serve" (include "ikebana.fullname" .) }}
{{- end }}
