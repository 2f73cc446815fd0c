"""Images that Codex reads and drops, compared with the real binary."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode, urlsafe_b64encode

import pytest

from tests.backends.codex.harness import CodexHarness, error_of, request
from tests.backends.codex.upstream import says
from toolrelay.backends.codex.input_checks import is_inline_image, is_readable_image
from toolrelay.core.messages import Image, Message


def png() -> bytes:
    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 3, 3, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xfb\xef\xbe" * 3) * 3, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", rows) + part(b"IEND", b"")


GIF = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\4\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
BMP = b"BM" + struct.pack("<IHHI", 58, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0) + b"\1\2\3\0"
PLAIN = b64encode(png()).decode()
READ = {"png": PLAIN, "gif": b64encode(GIF).decode()}
NOT_READ = {
    "empty": "",
    "no base64": "@@@@",
    "text": b64encode(b"hello").decode(),
    "svg": "PHN2Zz4=",
    "bmp": b64encode(BMP).decode(),
    "in lines": PLAIN[:40] + "\n" + PLAIN[40:],
    "for addresses": urlsafe_b64encode(png()).decode(),
    "unpadded": PLAIN.rstrip("="),
    "padded too much": PLAIN + "====",
    "a letter too long": PLAIN + "A",
}


@pytest.mark.parametrize("data", READ.values(), ids=READ)
@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_readable_image_reaches_the_model_despite_its_declared_type(codex: CodexHarness, data: str, kind: str) -> None:
    codex.ask(request(Message(role="user", content=(Image(url=f"data:image/{kind};base64,{data}"),))), says("ok"))
    assert codex.requests[0]["input"][0]["content"][0]["type"] == "input_image"


@pytest.mark.parametrize("data", NOT_READ.values(), ids=NOT_READ)
def test_unreadable_image_is_refused(codex: CodexHarness, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    asked = request(Message(role="user", content=(Image(url=f"data:image/png;base64,{data}"),)))
    error = error_of(codex.ask(asked, says("ok")))
    assert (error.status, error.code, error.param) == (400, "invalid_image", "messages")
    assert codex.requests == []
    monkeypatch.setattr("toolrelay.backends.codex.request.is_readable_image", lambda _url: True)  # what would it do?
    codex.ask(asked, says("ok"))
    assert codex.requests[0]["input"][0]["content"][0]["type"] == "input_text"


@pytest.mark.parametrize("start", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF87a", b"RIFF\0\1\2\3WEBP"])
def test_each_format_is_recognized_by_its_signature(start: bytes) -> None:
    assert is_readable_image("data:image/x;base64," + b64encode(start).decode())
    assert not is_readable_image("data:image/x;base64," + b64encode(start[1:]).decode())


@pytest.mark.parametrize("url", ["https://example.com/cat.png", "data:text/plain;base64,AAAA", "data:image/png,AAAA", "", ","])
def test_other_urls_are_not_inline_images(url: str) -> None:
    assert not is_inline_image(url)
