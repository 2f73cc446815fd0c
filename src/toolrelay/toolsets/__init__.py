"""Toolsets: groups of tools that the gateway runs."""
