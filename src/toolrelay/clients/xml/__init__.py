"""Clients that know tool calls only as `<use_tool>` blocks in text."""
