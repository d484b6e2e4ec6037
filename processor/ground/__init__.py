"""What stands on nothing else of ikebana: words, signals, restarts, the cache folder, Java."""
