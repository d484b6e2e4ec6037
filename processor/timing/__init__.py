"""The records that a batch reads, and the times that it closes."""
