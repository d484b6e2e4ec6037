"""Explain a plan before it runs: as values, and as text, Mermaid, SVG and HTML.

`explanation` has the content without any layout, and each rendering is a pure function of it.
"""
