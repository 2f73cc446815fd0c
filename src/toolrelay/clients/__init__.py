"""Kinds of clients that need more than their wire: one package each."""
