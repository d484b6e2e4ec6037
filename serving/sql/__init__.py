"""SQL over served collections, as of one time."""
