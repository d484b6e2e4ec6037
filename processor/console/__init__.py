"""The console: one page on a running server or pipeline, which loads nothing from elsewhere."""
