"""Joins of several relations, planned: what they read, in which order, by which arrangements.

Everything here is a value that is made of a plan's text alone; nothing reads data.
"""
