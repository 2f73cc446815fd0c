"""Dialects: the forms in which models print tool calls as text. One module for each form or family of forms."""
