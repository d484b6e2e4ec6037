"""Modules that import nothing else of ikebana: words, signals, restarts, caches, Java."""
