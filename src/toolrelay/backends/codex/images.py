"""Images as Codex takes them: inline. It goes by their first bytes, whatever their type is said to be.

What it cannot read it replaces by a sentence, and the model answers as if no image had been sent. What can be seen of that
without decoding the whole image is looked for here: another format, other text, a base64 that is not the plain one.
"""

from __future__ import annotations

import binascii
import re

_INLINE = re.compile(r"data:image/[^,]{0,80};base64,")
_READ = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP", re.DOTALL)
_NOT_PLAIN = ("-", "_", "\n", "\r", " ", "%")  # how base64 is written elsewhere


def is_inline(url: str) -> bool:
    return _INLINE.match(url) is not None


def is_readable(url: str) -> bool:
    """Of one that is inline."""
    start = url.index(",") + 1
    if (len(url) - start) % 4 or url.endswith("===") or any(url.find(mark, start) >= 0 for mark in _NOT_PLAIN):
        return False
    try:
        head = binascii.a2b_base64(url[start : start + 16], strict_mode=True)
    except ValueError:
        return False
    return _READ.match(head) is not None
