{{- /* The sections of the settings file, which wins over the pipeline file. Secrets are named by the
files that they are mounted as; ${…} is for ikebana to fill in, at its start. */}}

{{- define "ikebana.kafkaSettings" -}}
{{- $kafka := .Values.kafka }}
{{- $own := dict }}
{{- with $kafka.bootstrapServers }}{{- $_ := set $own "bootstrap.servers" . }}{{- end }}
{{- if or $kafka.sasl.mechanism $kafka.tls.enabled }}
{{- $_ := set $own "security.protocol" (printf "%s%s" (ternary "SASL_" "" (ne $kafka.sasl.mechanism "")) (ternary "SSL" "PLAINTEXT" $kafka.tls.enabled)) }}
{{- end }}
{{- with $kafka.sasl.mechanism }}{{- $_ := set $own "sasl.mechanism" . }}{{- end }}
{{- if $kafka.sasl.existingSecret }}
{{- $_ := set $own "sasl.username" ($kafka.sasl.username | default "${file:/etc/ikebana/secrets/sasl/username}") }}
{{- $_ := set $own "sasl.password" "${file:/etc/ikebana/secrets/sasl/password}" }}
{{- end }}
{{- if $kafka.tls.caSecret }}{{- $_ := set $own "ssl.ca.location" "/etc/ikebana/tls/ca.crt" }}{{- end }}
{{- if $kafka.tls.clientSecret }}
{{- $_ := set $own "ssl.certificate.location" "/etc/ikebana/tls/client.crt" }}
{{- $_ := set $own "ssl.key.location" "/etc/ikebana/tls/client.key" }}
{{- end }}
{{- range $setting, $_ := $kafka.settingsFrom }}
{{- $_ := set $own $setting (printf "${file:/etc/ikebana/secrets/kafka/%s}" $setting) }}
{{- end }}
{{- toYaml (merge $own $kafka.settings) }}
{{- end }}

{{- define "ikebana.registrySettings" -}}
{{- $own := dict }}
{{- range $setting, $_ := .Values.registry.settingsFrom }}
{{- $_ := set $own $setting (printf "${file:/etc/ikebana/secrets/registry/%s}" $setting) }}
{{- end }}
{{- toYaml (merge $own .Values.registry.settings) }}
{{- end }}

{{- define "ikebana.checkpoint" -}}
{{ .Values.checkpoint.uri | default (printf "/var/lib/ikebana/checkpoint/%s" .Values.checkpoint.folder) }}
{{- end }}

{{- define "ikebana.runSettings" -}}
{{- $own := dict "checkpoint" (include "ikebana.checkpoint" .) "local_directory" "/var/lib/ikebana/scratch/shards" "driver_memory" .Values.driver.memory }}
{{- if .Values.executors.count }}
{{- $_ := set $own "master" "k8s://https://${KUBERNETES_SERVICE_HOST}:${KUBERNETES_SERVICE_PORT}" }}
{{- with .Values.executors.maxCount }}{{- $_ := set $own "max_executors" (int .) }}{{- end }}
{{- else }}
{{- $_ := set $own "master" (printf "local[%v]" .Values.driver.cores) }}
{{- end }}
{{- toYaml (merge $own .Values.settings.run) }}
{{- end }}

{{- define "ikebana.sparkSettings" -}}
{{- $own := dict }}
{{- if and .Values.executors.count (not .Values.sparkOperator.enabled) }}
{{- $own = dict
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.container.image" (include "ikebana.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.driver.pod.name" "${POD_NAME}"
  "spark.kubernetes.authenticate.executor.serviceAccountName" (include "ikebana.executorServiceAccountName" .)
  "spark.kubernetes.executor.podTemplateFile" "/etc/ikebana/settings/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  "spark.driver.host" "${POD_IP}"
  "spark.driver.port" "7078"
  "spark.driver.blockManager.port" "7079"
  "spark.blockManager.port" "7079"
  "spark.executorEnv.IKEBANA_PORT" "7080"
  "spark.executor.instances" (.Values.executors.count | toString)
  "spark.executor.cores" (.Values.executors.cores | toString)
  "spark.executor.memory" .Values.executors.memory
  "spark.executor.memoryOverhead" .Values.executors.memoryOverhead }}
{{- with .Values.executors.requestCores }}{{- $_ := set $own "spark.kubernetes.executor.request.cores" (toString .) }}{{- end }}
{{- with .Values.executors.limitCores }}{{- $_ := set $own "spark.kubernetes.executor.limit.cores" (toString .) }}{{- end }}
{{- with .Values.image.pullSecrets }}{{- $_ := set $own "spark.kubernetes.container.image.pullSecrets" (join "," .) }}{{- end }}
{{- end }}
{{- toYaml (merge $own .Values.settings.spark) }}
{{- end }}
