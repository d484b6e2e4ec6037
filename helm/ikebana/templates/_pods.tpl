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

{{- /* Whether other pods may reach the console: somebody has said who may see it. */}}
{{- define "ikebana.consoleIsOpen" -}}
{{- with .Values.console }}{{ if or .anyone .tokens.secret .tls.clientCaKey }}true{{ end }}{{ end }}
{{- end }}

{{- /* The files of tokens and certificates of the console, which the driver alone opens. */}}
{{- define "ikebana.consoleVolumes" -}}
{{- with .Values.console.tokens }}
{{- if .secret }}
- name: console-tokens
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - {key: {{ .key }}, path: tokens.yaml}
{{- end }}
{{- end }}
{{- with .Values.console.tls }}
{{- if .secret }}
- name: console-tls
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - {key: {{ .certificateKey }}, path: tls.crt}
      - {key: {{ .privateKeyKey }}, path: tls.key}
      {{- with .clientCaKey }}
      - {key: {{ . }}, path: client-ca.crt}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "ikebana.consoleVolumeMounts" -}}
{{- if .Values.console.tokens.secret }}
- {name: console-tokens, mountPath: /etc/ikebana/console-tokens, readOnly: true}
{{- end }}
{{- if .Values.console.tls.secret }}
- {name: console-tls, mountPath: /etc/ikebana/console-tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "ikebana.driverPorts" -}}
- {name: http, containerPort: {{ .Values.http.port }}}
{{- if include "ikebana.consoleIsOpen" . }}
- {name: console, containerPort: {{ .Values.console.port }}}
{{- end }}
{{- end }}

{{- define "ikebana.driverEnv" -}}
- {name: IKEBANA_SETTINGS, value: /etc/ikebana/settings/settings.yaml}
- {name: IKEBANA_HTTP, value: "{{ ternary "0.0.0.0" "127.0.0.1" (eq "true" (include "ikebana.consoleIsOpen" .)) }}:{{ .Values.console.port }}"}
- {name: IKEBANA_PROBES, value: "0.0.0.0:{{ .Values.http.port }}"}
{{- with .Values.console }}
{{- if .anyone }}
- {name: IKEBANA_ANYONE, value: "true"}
{{- end }}
{{- if .tokens.secret }}
- {name: IKEBANA_TOKEN_FILE, value: /etc/ikebana/console-tokens/tokens.yaml}
{{- end }}
{{- if .tls.secret }}
- {name: IKEBANA_TLS_CERT, value: /etc/ikebana/console-tls/tls.crt}
- {name: IKEBANA_TLS_KEY, value: /etc/ikebana/console-tls/tls.key}
{{- if .tls.clientCaKey }}
- {name: IKEBANA_TLS_CLIENT_CA, value: /etc/ikebana/console-tls/client-ca.crt}
{{- end }}
{{- end }}
{{- end }}
# Sinks have pods of their own, which the console and the metrics ask.
- {name: IKEBANA_DELIVER, value: "false"}
{{- with include "ikebana.sinks" . | fromYaml }}
{{- $places := list }}
{{- range $sink, $_ := . }}
{{- $places = append $places (printf "%s=http://%s:%v" $sink (include "ikebana.sinkName" (dict "root" $ "sink" $sink)) $.Values.deliver.port) }}
{{- end }}
- {name: IKEBANA_SINK_AT, value: {{ join " " $places | quote }}}
{{- end }}
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
  {{- with include "ikebana.consoleVolumeMounts" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
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
