"""Which worker of xdist runs which file."""

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# Their files start brokers and Spark, and mostly wait for them.
_WAITING = ("tests/chaos/", "tests/faults/", "tests/kafka/", "tests/spark/")


class WaitingTogether(LoadFileScheduling):  # type: ignore[misc]
    """Files that wait run in one worker, beside those that compute in the others.

    So they share one broker, and the processors have work all the time.  A worker that has no
    file of its kind left takes one of the other.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        waits = node is self.nodes[0]
        for file in self.workqueue:
            if file.startswith(_WAITING) == waits:
                self.workqueue.move_to_end(file, last=False)
                break
        super()._assign_work_unit(node)
