"""Between topics and rows: what a batch reads, what it closes, decoding and formatting."""
