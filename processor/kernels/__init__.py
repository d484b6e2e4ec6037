"""Keyed operators as pure functions over a store: no Spark, no Kafka, no clock."""
