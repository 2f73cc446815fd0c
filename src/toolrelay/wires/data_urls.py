"""URLs that hold their data."""

from __future__ import annotations


def split_data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and the base64 data, or None for another kind of URL."""
    head, mark, data = url.partition(";base64,")
    return (head[5:].partition(";")[0], data) if mark and head.startswith("data:") else None
