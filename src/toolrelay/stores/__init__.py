"""Stores: turns, conversations, messages and usage in a database."""
