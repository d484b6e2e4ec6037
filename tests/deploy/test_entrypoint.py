"""What the image starts: Spark's two roles, any other command, and the health check."""

import json
import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from deploy.charts import ROOT
from ikebana.processor.base.listening import Tls, tls_context
from ikebana.processor.spark import class_archive
from support.certificates import Authority

DEPLOY = ROOT / "deploy"
# Stands for tini: tells what it was to start, and with what.
TINI = """#!{python}
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ)]))
"""


def started(
    folder: Path, arguments: list[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command line that the entry point ends in, and its environment."""
    (folder / "tini").write_text(TINI.format(python=sys.executable))
    (folder / "tini").chmod(0o755)
    # Python finds its packages beside the link by which it is called.
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    done = subprocess.run(
        ["bash", DEPLOY / "entrypoint.sh", *arguments],
        env={"PATH": f"{folder}:/usr/bin:/bin", "SPARK_HOME": "/spark", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    command, found = json.loads(done.stdout)
    assert command[:2] == ["-s", "--"]
    return command[2:], found


def test_an_executor_is_started_as_spark_asks(tmp_path: Path) -> None:
    """Java's options come in their order, and everything by the name that Spark gives it.

    Spark's jars come first and in the order of the archive of their classes, which is used.
    """
    java = Path("/java/bin/java")
    archive = class_archive.path_for(java, tmp_path / "ikebana")
    archive.parent.mkdir()
    archive.touch()
    command, _ = started(
        tmp_path,
        ["executor"],
        {
            "JAVA_HOME": "/java",
            "XDG_CACHE_HOME": str(tmp_path),
            "SPARK_CONF_DIR": "/opt/spark/conf",
            "SPARK_JAVA_OPT_10": "-Dlast=1",
            "SPARK_JAVA_OPT_9": "-Dspaced=a b",
            "SPARK_EXECUTOR_MEMORY": "512m",
            "SPARK_DRIVER_URL": "spark://d",
            "SPARK_EXECUTOR_ID": "3",
            "SPARK_EXECUTOR_CORES": "2",
            "SPARK_APPLICATION_ID": "app",
            "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_EXECUTOR_POD_NAME": "exec-3",
        },
    )
    assert command[:2] == ["/java/bin/java", f"-XX:SharedArchiveFile={archive}"]
    options = command.index("-Dspaced=a b")
    assert command[options + 1 : options + 4] == ["-Dlast=1", "-Xms512m", "-Xmx512m"]
    places = command.index("-cp") + 1
    assert command[places] == f"{class_archive.class_path()}:/opt/spark/conf::"
    told = dict(zip(command[places + 2 :: 2], command[places + 3 :: 2], strict=True))
    assert told == {
        "--driver-url": "spark://d",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "app",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "exec-3",
    }


def test_a_driver_of_spark_submit_is_python(tmp_path: Path) -> None:
    """Spark's properties reach the session, and Python is what SIGTERM comes to."""
    submitted = ["driver", "--properties-file", "/conf/spark.properties"]
    submitted += ["--class", "org.apache.spark.deploy.PythonRunner"]
    command, environment = started(
        tmp_path,
        [*submitted, "local:///opt/ikebana/main.py", "run", "p.yaml"],
        {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"},
    )
    assert command == ["python", "/opt/ikebana/main.py", "run", "p.yaml"]
    options = environment["PYSPARK_SUBMIT_ARGS"].split()
    assert options[:4] == ["--deploy-mode", "client", "--properties-file", submitted[2]]
    assert "spark.driver.bindAddress=10.0.0.1" in options
    assert options[-1] == "pyspark-shell"


def test_any_other_command_is_run_as_it_is(tmp_path: Path) -> None:
    """Arguments keep their spaces."""
    assert started(tmp_path, ["ikebana", "run", "a b"], {})[0] == ["ikebana", "run", "a b"]


# Stands for an executor that has a task to finish.
EXECUTOR = """
import signal, sys, time
asked = []
signal.signal(signal.SIGPWR, lambda *_: asked.append(True))
print("runs", flush=True)
while not asked:
    time.sleep(0.01)
time.sleep(0.3)
print("is done", flush=True)
"""


def test_an_executor_is_drained_before_its_container_ends(tmp_path: Path) -> None:
    """It is told, and the script returns when it has ended by itself; other processes are not."""
    name = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    executor, other = (
        subprocess.Popen(
            [java, "-c", EXECUTOR, name],
            executable=sys.executable,
            stdout=subprocess.PIPE,
            text=True,
        )
        for java in ("/java/bin/java", "/opt/ikebana/bin/python")
    )
    with executor, other:
        try:
            for process in (executor, other):
                assert process.stdout is not None
                assert process.stdout.readline() == "runs\n"
                (tmp_path / str(process.pid)).symlink_to(f"/proc/{process.pid}")
            subprocess.run(
                [sys.executable, DEPLOY / "decommission.py", tmp_path], check=True, timeout=60
            )
            assert executor.stdout is not None
            assert executor.stdout.read() == "is done\n"
            assert executor.wait(10) == 0
            assert other.poll() is None
        finally:
            executor.kill()
            other.kill()


def test_spark_is_told_of_the_script_that_drains_executors() -> None:
    """Kubernetes calls it in an executor's container: it is in the image, and can be executed."""
    settings = dict(
        line.split(maxsplit=1)
        for line in (DEPLOY / "spark-defaults.conf").read_text().splitlines()
        if line.startswith("spark.")
    )
    assert settings["spark.decommission.enabled"] == "true"
    script = Path(settings["spark.kubernetes.decommission.script"])
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert f"deploy/{script.name}" in dockerfile
    assert re.search(rf"chmod 0555 [^\\\n]*{re.escape(str(script))}", dockerfile)
    first = (DEPLOY / script.name).read_text().splitlines()[0]
    assert first == f"#!{script.parent}/bin/python"


@contextmanager
def answering(status: int, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port that answers `/live` with a status."""

    class Live(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/live" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Live)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_health_is_what_live_says(status: int, code: int) -> None:
    """The image's health check fails where `/live` does."""
    with answering(status) as port:
        assert health({"IKEBANA_HTTP": f"0.0.0.0:{port}"}) == code


def test_health_asks_where_probes_are_answered(tmp_path: Path) -> None:
    """Which need no certificate; otherwise over TLS, if the run answers so."""
    with answering(200) as port:
        assert health({"IKEBANA_DELIVER_HTTP": f"0.0.0.0:{port}"}) == 0
        told = {"IKEBANA_HTTP": "127.0.0.1:1", "IKEBANA_TLS_CERT": "c.pem"}
        assert health({**told, "IKEBANA_PROBES": f"0.0.0.0:{port}"}) == 0
        # It speaks no TLS.
        assert health({**told, "IKEBANA_HTTP": f"127.0.0.1:{port}"}) == 1
    ours = Authority("here").certified("localhost")
    (tmp_path / "c.pem").write_text(ours.certificate + ours.key)
    with answering(200, tls_context(Tls(tmp_path / "c.pem"))) as port:
        told = {"IKEBANA_HTTP": f"0.0.0.0:{port}", "IKEBANA_TLS_CERT": "c.pem"}
        assert health(told) == 0


def test_health_without_a_port() -> None:
    """Who serves none is healthy while it runs; who should serve one and does not is not."""
    assert health({}) == 0
    assert health({"IKEBANA_HTTP": "127.0.0.1:1"}) == 1


def health(environment: Mapping[str, str]) -> int:
    """What the image's health check ends with."""
    return subprocess.run(
        [sys.executable, DEPLOY / "healthcheck.py"],
        env={"PATH": os.environ["PATH"], **environment},
        stderr=subprocess.DEVNULL,
        check=False,
    ).returncode
