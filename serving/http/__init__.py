"""Served collections over HTTP."""
