"""From messages to packed rows: decoding, with all that was pushed into it."""
