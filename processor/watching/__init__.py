"""Watch a running pipeline: metrics, health probes and the display."""
