"""A start and its batches: what a shard does, with Kafka or in memory."""
