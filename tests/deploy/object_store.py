"""An object store on this machine, and the jars by which Spark writes to one.

The store is Versity's gateway, which speaks S3 and keeps objects as files: what it has
acknowledged is there when it was killed and is started again.  Hadoop wants one jar with all
of Amazon's SDK, of 690 MB; what it needs of it is 14 MB, whose dependencies Spark has itself.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import fs

from deploy import tools
from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka.broker import fetched_once, free_port, retrieve
from support.pipeline_processes import Pipeline
from support.waiting import wait_until

BUCKET = "state"
REGION = "us-east-1"
USER = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "sesame-of-the-bucket"}
HADOOP, ACCELERATOR, SDK = "3.5.0", "1.3.1", "2.35.4"
_FETCH_TIMEOUT_S = 600
_SPARK_HAS = ("io.netty", "org.slf4j", "commons-codec", "commons-logging")


def jars() -> Path:
    """The folder of the jars, fetched if this is the first time; 14 MB."""
    return fetched_once(tools.cache() / f"object-store-{HADOOP}-{SDK}", _fetch)


def _fetch(folder: Path, log_file: Path) -> None:
    def needed(organisation: str, name: str, revision: str, more: str = "") -> str:
        return f'<dependency org="{organisation}" name="{name}" rev="{revision}" {more}/>'

    alone = 'conf="default" transitive="false"'
    wanted = [
        needed("org.apache.hadoop", "hadoop-aws", HADOOP, alone),
        needed(
            *("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3"),
            *(ACCELERATOR, alone),
        ),
    ]
    wanted += [
        needed("software.amazon.awssdk", name, SDK, 'conf="default"')
        for name in ("s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    ]
    wanted += [f'<exclude org="{organisation}"/>' for organisation in _SPARK_HAS]
    text = (
        '<ivy-module version="2.0"><info organisation="ikebana" module="object-store"/>'
        f"<dependencies>{''.join(wanted)}</dependencies></ivy-module>"
    )
    status = retrieve(find_java(os.environ), text, folder, log_file, _FETCH_TIMEOUT_S)
    assert status == 0, f"the jars could not be fetched: {log_file}"


class Store:
    """A server on a folder; `start` and `kill` at will, its port stays the same."""

    def __init__(self, folder: Path) -> None:
        self._program = tools.versitygw()
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; return when there is a bucket."""
        objects, attributes = self.folder / "objects", self.folder / "attributes"
        for each in (objects, attributes):
            each.mkdir(parents=True, exist_ok=True)
        log_file = self.folder / "object-store.log"
        user, secret = USER.values()
        command: list[str | Path] = [self._program, "--access", user, "--secret", secret]
        command += ["--port", f"127.0.0.1:{self.port}", "--quiet", "posix"]
        # Not every file system has attributes of its own.
        command += ["--sidecar", attributes, objects]
        with log_file.open("ab") as log:
            process = self._process = subprocess.Popen(command, stdout=log, stderr=log)

        def ready() -> bool:
            assert process.poll() is None, log_file.read_text()[-2000:]
            try:
                system(self.url).create_dir(BUCKET)
            except OSError:
                return False
            return True

        wait_until(ready, 60, "the object store has a bucket")

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@dataclass(frozen=True)
class InBucket(Pipeline):
    """A pipeline whose checkpoint is in the bucket of a store, reached at a URL.

    `kept` is the folder of the store, which has the objects as files.
    """

    store: str = ""
    kept: Path = Path()

    @property
    def place(self) -> Path:
        """The checkpoint, as the store keeps it."""
        return self.kept / "objects" / BUCKET / self.name

    def document(self) -> dict[str, Any]:
        """The pipeline file."""
        found = super().document()
        found["run"]["checkpoint"] = f"s3a://{BUCKET}/{self.name}"
        found["spark"] = {
            "spark.hadoop.fs.s3a.endpoint": self.store,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            # Without it Hadoop signs for a region of its own choice, whatever AWS_REGION says.
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            **self.spark,
        }
        return found


def access(url: str) -> dict[str, str]:
    """The variables by which Arrow, PyIceberg and delta-rs find a store at a URL."""
    return {**USER, "AWS_REGION": REGION, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}


def environment(url: str) -> dict[str, str]:
    """The variables by which Spark and Arrow find a store at a URL."""
    return {**access(url), "SPARK_DIST_CLASSPATH": f"{jars()}/*"}


@contextmanager
def serving(folder: Path) -> Iterator[Store]:
    """A bucket until the end of the block.

    Raises: tools.MissingToolError.
    """
    store = Store(folder / "object-store")
    try:
        store.start()
        yield store
    finally:
        store.kill()


def system(url: str) -> fs.S3FileSystem:
    """The store as Arrow reaches it."""
    return fs.S3FileSystem(
        access_key=USER["AWS_ACCESS_KEY_ID"],
        secret_key=USER["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=url,
        region=REGION,
        allow_bucket_creation=True,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
