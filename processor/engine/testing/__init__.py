"""Test pipelines over topics in memory: micro-batches, crashes, restarts and shards.

A test takes milliseconds.  It uses the code of a run on Spark and Kafka for everything that
determines the results: minting of batches, decoding, operators, formats, and the rules by
which a changed plan may continue on a checkpoint.
"""
