"""Pipelines tested in this process, in milliseconds: without Spark, Kafka and a JVM.

`evaluate` runs a pipeline on records that say their own times; `Evaluation` does it step by
step.  `Run` is a pipeline over `Topics` in memory, in micro-batches, with deaths, restarts and
shards.  All run the decoding and the operators that run on Spark.
"""

from ikebana.processor.engine.evaluate import Evaluation, evaluate
from ikebana.processor.engine.testing.run import Run
from ikebana.processor.engine.testing.topics import Topics

__all__ = ["Evaluation", "Run", "Topics", "evaluate"]
