"""The streaming parser: finds tool calls in a model's text as it arrives. No I/O; independent of any dialect."""
