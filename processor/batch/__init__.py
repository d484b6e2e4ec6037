"""One micro-batch on one shard, from packed rows to what is written."""
