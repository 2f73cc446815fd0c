"""How models print tool calls as text: one engine, and a small module for each dialect."""
