"""Scripts, style sheets and vendored libraries of the console, kept in memory and compressed when they are first sent."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

FOLDERS = ("static", "vendor")
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class Asset:
    def __init__(self, body: bytes, content_type: str) -> None:
        self.body = body
        self.content_type = content_type
        self.etag = f'"{sha256(body).hexdigest()[:32]}"'

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, 9, mtime=0)


def load_assets() -> Mapping[str, Asset]:
    """Return all files by their path below /console/."""
    package = files("toolrelay.web.console")
    found = [each for folder in FOLDERS for each in _walk(package / folder, folder)]
    return {path: Asset(file.read_bytes(), content_type) for path, file, content_type in found}


def _walk(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable, str]]:
    for entry in folder.iterdir():
        inside = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, inside)
        elif (content_type := TYPES.get(f".{entry.name.rpartition('.')[2]}")) is not None:
            yield inside, entry, content_type
