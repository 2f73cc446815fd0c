"""Backends: connections to models, one package for each kind."""
