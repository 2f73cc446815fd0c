"""Recorded exchanges: their format, the recorder of a running gateway, and the masking of their content."""
