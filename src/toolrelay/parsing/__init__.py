"""The streaming parser: finds tool calls in a model's text as it arrives. Pure; knows no dialect."""
