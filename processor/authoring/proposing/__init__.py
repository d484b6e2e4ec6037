"""Propose a first pipeline file for a topic, from a sample of its messages.

These are pure functions of the messages, which `kafka.records` fetches.
"""
