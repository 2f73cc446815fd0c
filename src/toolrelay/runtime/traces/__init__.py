"""Traces: what happened in a recorded turn, step by step, and the same without content for a bug report."""
