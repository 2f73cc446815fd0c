"""Anthropic Messages, content parts: blocks of text, images and documents into parts, and parts into blocks."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Any

from msgspec import Struct

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import File, Image, OpaquePart, Part, Text
from toolrelay.errors import invalid
from toolrelay.wires.anthropic.thinking import NAME
from toolrelay.wires.data_urls import split_data_url
from toolrelay.wires.json import convert, without_nones

CITATION = "citation"  # in an annotation: the citation as Anthropic has it
_PDF, _PLAIN = "application/pdf", "text/plain"


class _TextBlock(Struct):
    type: str
    text: str
    citations: list[dict[str, Any]] | None = None


class _ImageBlock(Struct):
    type: str
    source: dict[str, Any]


class _DocumentBlock(Struct):
    type: str
    source: dict[str, Any]
    title: str | None = None


class _Source(Struct):
    type: str
    data: str | None = None
    media_type: str | None = None
    url: str | None = None
    file_id: str | None = None


def unknown(raw: dict[str, Any], known: type[Struct]) -> JsonObject | None:
    names = known.__struct_fields__
    return {key: value for key, value in raw.items() if key not in names} or None


def decode_part(raw: dict[str, Any], param: str) -> Part:
    match raw.get("type"):
        case "text":
            text = convert(raw, _TextBlock, param)
            annotations = tuple([annotation_of(citation) for citation in text.citations or ()])
            return Text(text=text.text, annotations=annotations, extra=unknown(raw, _TextBlock))
        case "image":
            return _decode_image(raw, param)
        case "document":
            return _decode_document(raw, param)
        case str():
            return OpaquePart(wire=NAME, raw=raw)
        case _:
            raise invalid("A content block needs a 'type'.", f"{param}.type", code="invalid_type")


def _decode_image(raw: dict[str, Any], param: str) -> Part:
    source = convert(convert(raw, _ImageBlock, param).source, _Source, f"{param}.source")
    extra = unknown(raw, _ImageBlock)
    match source:
        case _Source(type="base64", data=str(data), media_type=str(kind)):
            return Image(url=f"data:{kind};base64,{data}", extra=extra)
        case _Source(type="url", url=str(url)):
            return Image(url=url, extra=extra)
        case _Source(type="file", file_id=str(file_id)):
            return Image(file_id=file_id, extra=extra)
        case _:
            return OpaquePart(wire=NAME, raw=raw)


def _decode_document(raw: dict[str, Any], param: str) -> Part:
    document = convert(raw, _DocumentBlock, param)
    source = convert(document.source, _Source, f"{param}.source") if document.source.get("type") != "content" else None
    extra = unknown(raw, _DocumentBlock)
    match source:
        case _Source(type="base64", data=str(data), media_type=str(kind)):
            return File(data=f"data:{kind};base64,{data}", filename=document.title, extra=extra)
        case _Source(type="text", data=str(data)):
            encoded = b64encode(data.encode()).decode()
            return File(data=f"data:{_PLAIN};base64,{encoded}", filename=document.title, extra=extra)
        case _Source(type="url", url=str(url)):
            return File(url=url, filename=document.title, extra=extra)
        case _Source(type="file", file_id=str(file_id)):
            return File(file_id=file_id, filename=document.title, extra=extra)
        case _:
            return OpaquePart(wire=NAME, raw=raw)


def image_block(image: Image) -> JsonObject:
    return {"type": "image", "source": _source(image.url, image.file_id)}


def document_block(file: File) -> JsonObject:
    """Encode a file. Its data is a URL with data, or only the data, which then is a PDF."""
    source = _source(file.url, file.file_id)
    if file.data is not None:
        kind, data = split_data_url(file.data) or (_PDF, file.data)
        text = _decode_text(data) if kind.startswith("text/") else None
        if text is None:
            source = {"type": "base64", "media_type": kind, "data": data}
        else:
            source = {"type": "text", "media_type": _PLAIN, "data": text}
    return without_nones({"type": "document", "source": source, "title": file.filename})


def _source(url: str | None, file_id: str | None) -> JsonObject:
    if url is None:
        return {"type": "file", "file_id": file_id}
    kind, data = split_data_url(url) or ("", "")
    return {"type": "base64", "media_type": kind, "data": data} if kind else {"type": "url", "url": url}


def _decode_text(data: str) -> str | None:
    try:
        return b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


# Citations. The core has OpenAI's annotations; Anthropic's own form goes along for clients of this wire.


def annotation_of(citation: JsonObject, position: int = 0) -> JsonObject:
    """Return a citation as OpenAI's annotation: of a web page, or of a document of the request."""
    url = citation.get("url")
    if isinstance(url, str):
        title = citation.get("title")
        members: JsonObject = {"type": "url_citation", "url": url, "title": title if isinstance(title, str) else ""}
        return {**members, "start_index": position, "end_index": position, CITATION: citation}
    index, name, file_id = (citation.get(key) for key in ("document_index", "document_title", "file_id"))
    return {
        "type": "file_citation",
        "file_id": file_id if isinstance(file_id, str) else "",
        "filename": name if isinstance(name, str) else "",
        "index": index if isinstance(index, int) else 0,
        CITATION: citation,
    }


def citation_of(annotation: Json) -> JsonObject | None:
    """Return Anthropic's own form of an annotation, if it has one."""
    citation = annotation.get(CITATION) if isinstance(annotation, dict) else None
    return citation if isinstance(citation, dict) else None
