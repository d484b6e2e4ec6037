#!/bin/bash
# Runs the roles that Spark on Kubernetes requires of an image, or any other command.
#   executor                            as Spark's scheduler starts it
#   driver --properties-file F … X.py   as spark-submit in cluster mode starts it
#   ikebana run …                       a driver in client mode, or any other command
# tini is process 1 and passes signals on.  A driver runs as Python, because SIGTERM to
# spark-submit would end its JVM in the middle of a batch.
set -euo pipefail
# Executors write files of the checkpoint too, and nobody else has to read them.
umask 077

case "${1:-}" in
executor)
  options=()
  while IFS= read -r name; do
    options+=("${!name}")
  done < <(compgen -A variable SPARK_JAVA_OPT_ | sort -t_ -k4 -n)
  # An archive of classes needs Spark's jars first and in its own order.
  mapfile -t jvm < <(python -m ikebana.processor.spark.class_archive "$JAVA_HOME/bin/java")
  exec tini -s -- "$JAVA_HOME/bin/java" "${jvm[@]:1}" "${options[@]}" \
    "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${jvm[0]}:${SPARK_CONF_DIR:-}:${SPARK_CLASSPATH:-}:${SPARK_DIST_CLASSPATH:-}" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
driver)
  shift
  arguments=()
  while [[ "${1:-}" == --* ]]; do
    # The class is Spark's runner of Python files, which this script replaces.
    [[ "$1" == --class ]] || arguments+=("$1" "$2")
    shift 2
  done
  export PYSPARK_SUBMIT_ARGS="--deploy-mode client ${arguments[*]} \
--conf spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS \
--conf spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS pyspark-shell"
  program="${1#local://}"
  shift
  exec tini -s -- python "$program" "$@"
  ;;
*)
  # If only the driver's container was started again, the executors before it still run.
  if [[ -n "${IKEBANA_CLEAN_EXECUTORS:-}" ]]; then
    python /opt/ikebana/clean_executors.py "$IKEBANA_CLEAN_EXECUTORS" || true
  fi
  exec tini -s -- "$@"
  ;;
esac
