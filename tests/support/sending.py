"""Threads that send while a test does something else."""

import threading


class Sending(threading.Thread):
    """A thread that sends until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._end = threading.Event()

    def run(self) -> None:
        try:
            self._send()
        except BaseException as error:
            self.error = error
            raise

    def stop(self) -> None:
        """End between two things that it sends, and return when that is done.

        Raises: AssertionError, if an error had ended it.
        """
        self._end.set()
        self.join()
        assert self.error is None, self.error

    def _send(self) -> None:
        """Send until `_end` is set."""
        raise NotImplementedError
