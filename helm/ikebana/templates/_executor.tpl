{{- /* The pod that Spark makes executors of. Without it they would have no security context, and a
namespace that enforces the restricted standard would refuse them. */}}
{{- define "ikebana.executorPod" -}}
metadata:
  labels:
    {{- include "ikebana.selectorLabels" . | nindent 4 }}
    app.kubernetes.io/component: executor
    {{- with .Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .Values.executors.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) .Values.executors.podAnnotations .Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.executors.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- include "ikebana.placement" .Values.executors | nindent 2 }}
  containers:
    - name: executor
      image: {{ include "ikebana.image" . }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      {{- with .Values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- include "ikebana.sharedVolumeMounts" . | nindent 8 }}
  volumes:
    - name: scratch
      {{- toYaml .Values.executors.scratch | nindent 6 }}
    {{- include "ikebana.sharedVolumes" . | nindent 4 }}
{{- end }}
