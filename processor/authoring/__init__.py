"""The pipeline file: its sections, its JSON Schema, its settings, and proposals for one."""
