"""The rows and updates that travel between the steps of a batch, and their packing."""
