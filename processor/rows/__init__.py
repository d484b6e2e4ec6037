"""What travels between the steps of a batch: rows, updates, and how they are packed."""
