"""A local copy that is built again from its topic, while it is served."""

from pathlib import Path

import pytest

from ikebana.arrangements.rocks import LocalDamageError
from ikebana.processor.watching.guard import EVERYTHING
from ikebana.serving.http_server import ServiceProbes
from ikebana.serving.operations import Callers
from ikebana.serving.service import Permitted, Service
from support.served_topics import MemoryTopics, serving


def is_ready(service: Service) -> bool:
    ready, _ = ServiceProbes(Callers(service), Permitted(service, EVERYTHING), 60).ready()
    return ready


@pytest.mark.parametrize("reason", ["damaged", "made anew"])
def test_a_copy_that_is_built_again_is_not_ready_before_it_has_come_as_far(
    tmp_path: Path, reason: str
) -> None:
    topics = MemoryTopics()
    topics.ids["out"] = "1"
    for upper in (1, 2, 3):
        topics.close("out", upper, (b"%d" % upper, b"old", upper - 1, 1))
    with serving(topics, tmp_path, "out", start=False) as service:
        followed = service._followed["out"]
        assert service._step(followed)
        assert is_ready(service)

        if reason == "damaged":
            topics.failure = LocalDamageError("it is damaged")
            service._step(followed)
            topics.failure = None
        else:
            followed.reopen()
            topics.make_anew("out", "2")
            topics.close("out", 1, (b"1", b"new", 0, 1))
            topics.close("out", 2, (b"2", b"new", 1, 1))
        steps = followed.batches()
        next(steps)

        assert not is_ready(service)
        assert service.progress("out").caught_up_s is None
        assert len(list(steps)) == (2 if reason == "damaged" else 1)
        assert is_ready(service)
