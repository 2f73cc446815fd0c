"""Clients that need more than their wire: one package for each kind."""
