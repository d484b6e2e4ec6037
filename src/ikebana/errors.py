"""The errors that are somebody else's doing: bad input, bad settings, a damaged file.

A broken invariant of our own is an `AssertionError` or a `RuntimeError` and is not
here.  Every message is lower case, names the object, and says what to do in a second
line that begins with `Hint: `.
"""

from collections.abc import Sequence


class IkebanaError(Exception):
    """Something outside ikebana has to change before this can succeed."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nHint: {hint}")
        self.message = message
        self.hint = hint


class ConfigError(IkebanaError):
    """A setting or a pipeline file asks for something that cannot be."""


class PlanError(IkebanaError):
    """The parts of a plan do not fit together; `problems` are (path, problem) pairs."""

    def __init__(self, plan: str, problems: Sequence[tuple[str, str]]) -> None:
        listed = "; ".join(f"{path}: {problem}" for path, problem in problems)
        super().__init__(f'cannot plan "{plan}": {listed}')
        self.problems = list(problems)


class StateFileError(IkebanaError):
    """A file of an arrangement shard is missing or damaged."""


class CheckpointError(IkebanaError):
    """A checkpoint does not belong to what it is being used for.

    `paths` are those of the pipeline file that it does not fit.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, paths: Sequence[str] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.paths = tuple(paths)


class FencedError(IkebanaError):
    """A newer instance of the pipeline has taken over."""


EXIT_FENCED = 3
"""The status of a command that a `FencedError` has ended; starting it again helps nobody."""


class SourceError(IkebanaError):
    """A topic cannot give the records that the offset log names."""


class AwayError(IkebanaError):
    """Brokers, a registry or a server could not answer now; asked again later, they may."""


class LateError(AwayError):
    """The brokers have ended a transaction before it could be committed; nothing of it was."""


class AccessError(IkebanaError):
    """The brokers do not let us do what a pipeline has to do."""


class RecordError(IkebanaError):
    """A record cannot be used, and the pipeline is told to stop at one."""


class StuckError(IkebanaError):
    """A function or an expression of a pipeline did not return in time."""


class TooMuchError(IkebanaError):
    """A batch has more to do than fits into the time that it may take."""


class ConvergenceError(IkebanaError):
    """A recursion did not come to an end in as many rounds as it may take."""


class SpaceError(IkebanaError):
    """A disk is full; when there is space again, what has failed may succeed."""


class StorageError(IkebanaError):
    """The file system of a checkpoint did not answer; asked again later, it may."""


class QueryError(IkebanaError):
    """Spark ended the query for a reason that has no name here."""


class LostError(QueryError):
    """Spark lost a worker, an executor or its JVM, which can be started again."""


class SparkStartError(IkebanaError):
    """Spark's JVM did not come up."""


class OutputError(IkebanaError):
    """What a command prints cannot be written, for instance since a disk is full."""


class JavaError(IkebanaError):
    """There is no Java that Kafka and Spark can run on."""


class BrokerError(IkebanaError):
    """The embedded broker could not be fetched or started."""
