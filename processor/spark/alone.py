"""One run at a time has Spark in this process."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ikebana.errors import ConfigError

# Held by the run whose Spark this process has, from before its start until it has ended.
_ours = threading.Lock()


@contextmanager
def alone(pipeline: str) -> Iterator[None]:
    """Keep other runs from starting Spark in this process in a `with` block.

    The block may end in another thread than it has begun in.

    Raises:
        ConfigError: Spark runs in this process already, or is being started.
    """
    is_free = _ours.acquire(blocking=False)
    try:
        if not is_free or _is_running():
            raise ConfigError(
                f'cannot start Spark for pipeline "{pipeline}": '
                "this process has Spark already, of another run or of your own",
                hint="Stop that one first, or run several pipelines on one session of your own: "
                "spark=session.",
            )
        yield
    finally:
        if is_free:
            _ours.release()


def _is_running() -> bool:
    """Whether Spark runs in this process."""
    # Another thread may be importing it now.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return context is not None and context._active_spark_context is not None
