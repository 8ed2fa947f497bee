"""Adversaries: the panel that tries to read a concept, how it is scored, and the leak to expect."""
