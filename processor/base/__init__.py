"""What all rooms use: words, rows and their packing, readers of outputs, signals, caches, Java."""
