"""The front doors, over plain ASGI."""
