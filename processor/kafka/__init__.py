"""Everything that talks to Kafka; confluent_kafka is imported nowhere else."""
