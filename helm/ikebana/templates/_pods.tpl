{{- /* What driver and executors have in common. */}}

{{- define "ikebana.needsTlsFiles" -}}
{{- if or .Values.kafka.tls.caSecret .Values.kafka.tls.clientSecret }}true{{ end }}
{{- end }}

{{- define "ikebana.needsSecretFiles" -}}
{{- if or .Values.kafka.sasl.existingSecret .Values.kafka.settingsFrom .Values.registry.settingsFrom }}true{{ end }}
{{- end }}

{{- /* Temporary files, and those that Kafka's client opens. */}}
{{- define "ikebana.clientVolumes" -}}
- name: tmp
  emptyDir: {}
{{- if include "ikebana.needsTlsFiles" . }}
- name: tls
  projected:
    defaultMode: 0440
    sources:
      {{- with .Values.kafka.tls.caSecret }}
      - secret:
          name: {{ . }}
          items:
            - {key: {{ $.Values.kafka.tls.caKey }}, path: ca.crt}
      {{- end }}
      {{- with .Values.kafka.tls.clientSecret }}
      - secret:
          name: {{ . }}
          items:
            - {key: {{ $.Values.kafka.tls.certificateKey }}, path: client.crt}
            - {key: {{ $.Values.kafka.tls.privateKeyKey }}, path: client.key}
      {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Executors open these themselves; other secrets reach them in what the driver sends. */}}
{{- define "ikebana.sharedVolumes" -}}
{{ include "ikebana.clientVolumes" . }}
{{- if not .Values.checkpoint.uri }}
- name: checkpoint
  persistentVolumeClaim:
    claimName: {{ include "ikebana.claim" . }}
{{- end }}
{{- end }}

{{- define "ikebana.sharedVolumeMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: scratch, mountPath: /var/lib/ikebana/scratch}
{{- if not .Values.checkpoint.uri }}
- {name: checkpoint, mountPath: /var/lib/ikebana/checkpoint}
{{- end }}
{{- if include "ikebana.needsTlsFiles" . }}
- {name: tls, mountPath: /etc/ikebana/tls, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ikebana.driverVolumes" -}}
{{- if not .Values.pipeline.module }}
- name: pipeline
  configMap:
    name: {{ include "ikebana.pipelineConfigMap" . }}
{{- end }}
- name: settings
  configMap:
    name: {{ include "ikebana.fullname" . }}-settings
{{- if include "ikebana.needsSecretFiles" . }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- with .Values.kafka.sasl }}
      {{- if .existingSecret }}
      - secret:
          name: {{ .existingSecret }}
          items:
            {{- if not .username }}
            - {key: {{ .usernameKey }}, path: sasl/username}
            {{- end }}
            - {key: {{ .passwordKey }}, path: sasl/password}
      {{- end }}
      {{- end }}
      {{- range $section, $from := dict "kafka" .Values.kafka.settingsFrom "registry" .Values.registry.settingsFrom }}
      {{- range $setting, $in := $from }}
      - secret:
          name: {{ $in.secret }}
          items:
            - {key: {{ $in.key }}, path: {{ $section }}/{{ $setting }}}
      {{- end }}
      {{- end }}
{{- end }}
{{- end }}

{{- define "ikebana.driverVolumeMounts" -}}
{{- if not .Values.pipeline.module }}
- {name: pipeline, mountPath: /etc/ikebana/pipeline, readOnly: true}
{{- end }}
- {name: settings, mountPath: /etc/ikebana/settings, readOnly: true}
{{- if include "ikebana.needsSecretFiles" . }}
- {name: secrets, mountPath: /etc/ikebana/secrets, readOnly: true}
{{- end }}
{{- end }}

{{- define "ikebana.driverEnv" -}}
- {name: IKEBANA_SETTINGS, value: /etc/ikebana/settings/settings.yaml}
- {name: IKEBANA_HTTP, value: "0.0.0.0:{{ .Values.http.port }}"}
- {name: SPARK_LOCAL_DIRS, value: /var/lib/ikebana/scratch/spark}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Where a pod may run: one of .Values.driver and .Values.executors. */}}
{{- define "ikebana.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "ikebana.driverContainer" -}}
image: {{ include "ikebana.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  {{- toYaml .Values.driver.resources | nindent 2 }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- include "ikebana.driverVolumeMounts" . | nindent 2 }}
  {{- include "ikebana.sharedVolumeMounts" . | nindent 2 }}
{{- end }}
{{- define "ikebana.podEnv" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- end }}

{{- define "ikebana.probes" -}}
startupProbe:
  httpGet: {path: /live, port: http}
  {{- toYaml .Values.probes.startup | nindent 2 }}
livenessProbe:
  httpGet: {path: /live, port: http}
  {{- toYaml .Values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: /ready, port: http}
  {{- toYaml .Values.probes.readiness | nindent 2 }}
{{- end }}
