"""What a plan becomes before it runs: as values, and as text, Mermaid, SVG and HTML.

`explanation` says what there is to say, and nothing of how it looks; each rendering is
a pure function of that.
"""
