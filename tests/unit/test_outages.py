"""Object stores and disks that fail for a while, in the words of Arrow, of Hadoop and of Spark."""

import errno

import pytest

from ikebana import errors
from ikebana.errors import IkebanaError
from ikebana.processor.checkpoint.checkpoint import naming_location
from ikebana.processor.spark import failures

TASK = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to "
    "stage failure: Lost task 0.3 in stage 3.0 (TID 9) (127.0.0.1 executor driver): {}\n"
    "\tat org.apache.spark.api.python.BasePythonRunner\n SQLSTATE: XXKST"
)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        pytest.param(
            TASK.format(
                "PythonException: Traceback\nOSError: When completing multiple part upload for "
                "key 'a/b' in bucket 'state': AWS Error SLOW_DOWN during CompleteMultipartUpload "
                "operation: Please reduce your request rate."
            ),
            errors.StorageError,
            "the checkpoint's store did not answer (OSError: When completing multiple part",
            id="an object store that throttles",
        ),
        pytest.param(
            TASK.format(
                "PythonException: Traceback\nOSError: When getting information for key 'a' in "
                "bucket 'state': AWS Error UNKNOWN (HTTP status 503) during HeadObject operation"
            ),
            errors.StorageError,
            "the checkpoint's store did not answer",
            id="an object store that has no words for it",
        ),
        pytest.param(
            TASK.format(
                "PythonException: Traceback\nOSError: When reading information for key 'a' in "
                "bucket 'state': AWS Error ACCESS_DENIED during HeadObject operation: no"
            ),
            errors.QueryError,
            "the query ended with an error: OSError: When reading information",
            id="an object store that refuses",
        ),
        pytest.param(
            "org.apache.hadoop.fs.s3a.AWSClientIOException: getFileStatus on s3a://state/a: "
            "software.amazon.awssdk.core.exception.SdkClientException: Unable to execute HTTP "
            "request: Connect to 127.0.0.1:9000 failed: Connection refused",
            errors.StorageError,
            "the checkpoint's store did not answer (",
            id="an object store that is away",
        ),
    ],
)
def test_what_a_store_says_has_a_name(text: str, kind: type[Exception], message: str) -> None:
    """The run is started again after what may pass, and ends after what it refuses."""
    found = failures.own_error_in(text)

    assert type(found) is kind
    assert str(found).startswith(message)
    assert failures.is_transient(found) == (kind is errors.StorageError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), errors.SpaceError),
        (OSError("AWS Error NETWORK_CONNECTION during HeadObject operation"), errors.StorageError),
        (PermissionError(errno.EACCES, "Permission denied"), errors.CheckpointError),
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation"), errors.CheckpointError),
    ],
)
def test_a_restart_that_cannot_reach_the_checkpoint_is_worth_another_one_if_that_may_pass(
    error: OSError, kind: type[IkebanaError]
) -> None:
    """What begins while the store is still away, or the disk still full, is tried again."""
    with (
        pytest.raises(kind, match='could not read "s3a://state"') as raised,
        naming_location("s3a://state", "read"),
    ):
        raise error

    worthwhile = kind is not errors.CheckpointError
    assert failures.is_transient(raised.value) == worthwhile
    assert failures.is_transient(failures.own_error(error)) == worthwhile


def test_a_start_of_spark_that_fails_is_told_by_what_java_says() -> None:
    """Not by the name of the call, which is the same for every reason."""
    text = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.net.BindException: Cannot assign requested address: Service failed\n"
        "\tat java.base/sun.nio.ch.Net.bind0(Native Method)\n"
    )

    assert failures.innermost_error(text) == (
        "java.net.BindException: Cannot assign requested address: Service failed"
    )
    assert failures.innermost_error("no JVM\nmore") == "no JVM"
