"""Planning of joins: what they read, in which order, by which arrangements.

All values here follow from the text of a plan; nothing reads data.
"""
