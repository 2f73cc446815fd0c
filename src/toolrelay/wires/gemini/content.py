"""Gemini, content parts of a request: images, audio and files as data or by their address."""

from __future__ import annotations

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Audio, File, Image
from toolrelay.wires.data_urls import split_data_url

_PDF = "application/pdf"
_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "avif": "image/avif",
    "bmp": "image/bmp",
    "svg": "image/svg+xml",
    "pdf": _PDF,
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "xml": "text/xml",
    "json": "application/json",
    "mp3": "audio/mp3",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "aac": "audio/aac",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
}


def image_part(image: Image) -> JsonObject:
    return _by_url(image.url or "", "image/jpeg")


def audio_part(audio: Audio) -> JsonObject:
    return _inline(_TYPES.get(audio.format, f"audio/{audio.format}"), audio.data)


def file_part(file: File) -> JsonObject:
    """Encode a file. Its data is a URL with data, or only the data; then the name tells what it is, or it is a PDF."""
    default = _type_of(file.filename or "") or _PDF
    if file.data is None:
        return _by_url(file.url or "", default)
    kind, data = split_data_url(file.data) or (default, file.data)
    return _inline(kind, data)


def _by_url(url: str, default: str) -> JsonObject:
    found = split_data_url(url)
    if found is not None:
        return _inline(found[0] or default, found[1])
    path = url.partition("?")[0].partition("#")[0]
    return {"fileData": {"mimeType": _type_of(path) or default, "fileUri": url}}


def _inline(kind: str, data: str) -> JsonObject:
    return {"inlineData": {"mimeType": kind, "data": data}}


def _type_of(name: str) -> str | None:
    return _TYPES.get(name.rpartition(".")[2].lower())
