"""Scripts, style sheets and vendored libraries of the console, compressed once and kept in memory."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from msgspec import Struct

FOLDERS = ("static", "vendor")
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class Asset(Struct, frozen=True, kw_only=True):
    body: bytes
    compressed: bytes
    content_type: str
    etag: str


def load_assets() -> Mapping[str, Asset]:
    """Return all files by their path below /console/."""
    package = files("toolrelay.web.console")
    found = [each for folder in FOLDERS for each in _walk(package / folder, folder)]
    return {path: _load(file, content_type) for path, file, content_type in found}


def _walk(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable, str]]:
    for entry in folder.iterdir():
        inside = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, inside)
        elif (content_type := TYPES.get(f".{entry.name.rpartition('.')[2]}")) is not None:
            yield inside, entry, content_type


def _load(file: Traversable, content_type: str) -> Asset:
    body = file.read_bytes()
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    return Asset(body=body, compressed=gzip.compress(body, 9, mtime=0), content_type=content_type, etag=etag)
