"""Arguments that a dialect cannot express. All others must survive rendering and parsing.

JSON            none
CDATA           a value with the end of such a block and of its tag
tags            a value with its own closing tag where the next parameter, the end or the next call could follow; a value with the
                end of the call and what may follow that; a value with the beginning of a call; a name with the end of names
Python          keywords that differ only in surrounding blanks; a keyword that begins with another one and `=`
tool_tags       a value with the beginning of a closing tag; a name with blanks or marks of tags
Gemma           a string with the mark that ends strings
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from toolrelay.dialects import glm, invoke, kimi, muse_glimmer, qwen3_coder, use_tool
from toolrelay.dialects.tagged_parameters import TagForm, plain_header

TAGS: dict[str, TagForm] = {
    "qwen3_coder": qwen3_coder.QWEN,
    "qwen35": qwen3_coder.QWEN,
    "mimo": qwen3_coder.MIMO,
    "seed_oss": qwen3_coder.SEED,
    "use_tool": use_tool.FORM,
    "glm45": glm.FORM,
    "glm47": glm.FORM,
    "hy3": glm.HY,
    "longcat_lite": glm.LONGCAT,
    "kimi_k3": kimi.K3,
    "muse_glimmer": muse_glimmer.FORM.form,
    **{name: block.form for name, block in invoke.FORMS.items()},
}


def _in_tags(form: TagForm) -> Callable[[Mapping[str, Any]], bool]:
    quoted_names = form.key_open.endswith("name=")
    name_ends = "|".join(map(re.escape, form.frame.name_ends))
    next_call = re.compile(rf"{re.escape(form.frame.call)}[\w.\-\"' /]+(?:{name_ends})")

    def can_express(arguments: Mapping[str, Any]) -> bool:
        for key, value in arguments.items():
            if form.key_close in key or (quoted_names and '"' in key and "'" in key):
                return False
            if form.parse_header is plain_header and key != key.strip():
                return False
            if key.startswith("/") and form.key_open.endswith("<"):
                return False
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            close = form.close(key)
            if form.cdata and re.search(r"[<&\n]", text):
                if f"]]>{close}" in text.replace("\n", ""):
                    return False
                continue
            if next_call.search(text) or (form.nested and close in text):
                return False
            frame = form.frame
            follows = "|".join(map(re.escape, form.followers))
            ends = "|".join(map(re.escape, (*frame.ends, *frame.closes)))
            after_end = "|".join(map(re.escape, (*frame.closes, *frame.opens, frame.call)))
            closing = re.compile(rf"{re.escape(close)}[ \t\r\n]*(?:{follows})|(?:{ends})[ \t\r\n]*(?:{after_end})")
            written = text + ("\n" if form.trims else "") + close + "\n" + frame.ends[0]
            found = closing.search(written)
            if found is None or found.start() != len(written) - len(close + "\n" + frame.ends[0]):
                return False
        return True

    return can_express


def _in_python(arguments: Mapping[str, Any]) -> bool:
    bare = [key.strip(" \t\r\n") for key in arguments]
    begins = re.compile("|".join(re.escape(key) + r"[ \t\r\n]*=" for key in bare))
    return len(set(bare)) == len(bare) and not any(begins.match(key) for key in bare)


def _in_tool_tags(arguments: Mapping[str, Any]) -> bool:
    written = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in arguments.values())
    return all(re.fullmatch(r"[^<>/\s]+", key) for key in arguments) and not any("</" in text for text in written)


def _in_gemma(mark: str) -> Callable[[Mapping[str, Any]], bool]:
    """A string that ends with the beginning of the mark cannot be expressed either."""

    def can_express(arguments: Mapping[str, Any]) -> bool:
        return all(mark not in text + mark[:-1] for text in _strings(arguments))

    return can_express


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _strings(part)]
    return [text for item in value for text in _strings(item)] if isinstance(value, list) else []


_LIMITS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    **{name: _in_tags(form) for name, form in TAGS.items()},
    **dict.fromkeys(("pythonic", "olmo3", "lfm2", "lfm25", "gemma3"), _in_python),
    "tool_tags": _in_tool_tags,
    "functiongemma": _in_gemma("<escape>"),
    "gemma4": _in_gemma('<|"|>'),
}


def can_express(dialect: str, arguments: Mapping[str, Any]) -> bool:
    limit = _LIMITS.get(dialect)
    return limit is None or limit(arguments)
