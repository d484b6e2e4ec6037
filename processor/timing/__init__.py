"""Which records a batch reads, and which times it closes."""
