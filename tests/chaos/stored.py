"""A pipeline whose checkpoint is in an object store that it reaches over two proxies."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from chaos.brokers import proxied
from chaos.http_faults import FaultyHttp
from chaos.life import Life
from chaos.plans import Plan
from chaos.proxy import Proxy
from chaos.runs import Unavailable
from deploy import object_store, tools
from deploy.object_store import InBucket, Store
from ikebana.processor.kafka.broker import free_port

# Hadoop's client waits longer than these faults last.
_IMPATIENT = {
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.retry.limit": "2",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "2",
    "spark.hadoop.fs.s3a.connection.timeout": "5s",
    "spark.hadoop.fs.s3a.connection.establish.timeout": "5s",
}


class Stored(Life):
    """A life with a store; `link` is the way to it, and `answers` what becomes of requests."""

    def __init__(self, store: Store, link: Proxy, answers: FaultyHttp, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.store = store
        self.link = link
        self.answers = answers
        url = f"http://127.0.0.1:{link.port}"
        same = {each.name: getattr(self.pipeline, each.name) for each in fields(self.pipeline)}
        same["spark"] = _IMPATIENT
        self.pipeline = InBucket(**same, store=url, kept=store.folder)
        self.environment |= object_store.environment(url)


@contextmanager
def stored(
    folder: Path, seed: int, max_batch_s: int, longer_s: float, plan: Plan
) -> Iterator[Life]:
    """A life over one broker and one object store.

    Raises:
        Unavailable: no object store is built here.
    """
    with ExitStack() as stack:
        try:
            store = stack.enter_context(object_store.serving(folder))
        except tools.MissingToolError as error:
            raise Unavailable(str(error)) from error
        answers = stack.enter_context(FaultyHttp(free_port(), store.port, seed))
        link = stack.enter_context(Proxy(free_port(), answers.port))
        broker, proxy = stack.enter_context(proxied())
        arguments = (folder, broker, proxy, seed, max_batch_s, longer_s, plan)
        yield Stored(store, link, answers, *arguments)
