"""Notes as text: encoding, frontmatter, tags, the first line. Nothing here fails on bad input."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import yaml

from toolrelay.toolsets.vault.folding import fold_input

MAX_FRONTMATTER = 65_536  # characters that are read as YAML; of a longer one the lines of tags are

_MAX_DEPTH = 32  # libyaml takes quadratic time for deep nesting
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_FRONTMATTER = re.compile(r"---[ \t]*\r?\n(?P<yaml>.*?)(?<=\n)(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_FENCED = re.compile(
    r"^[ >\t]*(?:(?P<fence>`{3,})[^`\n]*|(?P<tildes>~{3,})[^\n]*)\n.*?(?:^[ >\t]*(?:(?P=fence)`*|(?P=tildes)~*)[ \t\r]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_BACKTICKS = re.compile("`+")
_TAG = re.compile(r"#(?<![\w/&#]#)(?<!\]\(#)(?<!\[\[#)(?P<tag>[^\s\u2000-\u206f\u2e00-\u2e7f'!\"#$%&()*+,.:;<=>?@^`{|}~\[\]\\]+)")
_TAG_LINE = re.compile(r"^[\"']?tags?[\"']?[ \t]*:(?P<value>.*(?:\n(?![^\s#-][^:\n]*:).*)*)", re.MULTILINE | re.IGNORECASE)
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def decode_note(content: bytes) -> str | None:
    """Decode UTF-8, or what a byte order mark says. None: it is not text, because it contains NUL."""
    encoding = "utf-8"
    for mark, name in _BOMS:
        if content.startswith(mark):
            content, encoding = content[len(mark) :], name
            break
    text = content.decode(encoding, errors="replace")
    return None if "\0" in text else text


def split_frontmatter(text: str) -> tuple[str, str]:
    """Return the frontmatter, without its marks, and what follows it."""
    match = _FRONTMATTER.match(text)
    return (match["yaml"], text[match.end() :]) if match else ("", text)


def first_line(text: str, length: int) -> str:
    """Return the first line after the frontmatter that is not blank, cut to `length` characters."""
    for line in _lines(split_frontmatter(text)[1]):
        if line.strip():
            return " ".join(line[: 4 * length].split())[:length]
    return ""


def _lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def read_tags(text: str) -> set[str]:
    """Return the tags of a note, folded, each with those that contain it: `a/b` has the tags a/b and a."""
    frontmatter, body = split_frontmatter(text)
    found = _read_frontmatter_tags(frontmatter) if frontmatter else []
    if "#" in body:
        if "`" in body or "~~~" in body:
            body = "\n\n".join(map(_remove_inline_code, _BLANK_LINE.split(_FENCED.sub("\n\n", body))))
        found += [match["tag"] for match in _TAG.finditer(body)]
    return _fold_tags(found)


def read_possible_tags(text: str) -> set[str]:
    """Return the tags of a note and all that could be one: in code, and where frontmatter may be read in another way.

    What is code depends on lists, quotes and tables, which are not parsed here. A note with a private tag must not be missed.
    """
    found = [match["tag"] for match in _TAG.finditer(text)]
    if text.lstrip().startswith("---"):
        lines = text.lstrip().replace("\r\n", "\n").replace("\r", "\n")
        found += _read_tag_lines(lines[3 : max(lines.find("\n---", 3), 0)])
    return read_tags(text) | _fold_tags(found)


def _fold_tags(found: list[str]) -> set[str]:
    tags: set[str] = set()
    for tag in set(found):
        parts = [part for part in fold_input(tag.lstrip("#")).split("/") if part]
        if not "".join(parts).isdigit():
            tags.update("/".join(parts[: count + 1]) for count in range(len(parts)))
    return tags


def _remove_inline_code(paragraph: str) -> str:
    """Remove what is between two runs of backticks of the same length."""
    runs = [(match.start(), match.end()) for match in _BACKTICKS.finditer(paragraph)]
    closing: dict[int, int] = {}
    latest: dict[int, int] = {}  # the next run of each length
    for number in range(len(runs) - 1, -1, -1):
        length = runs[number][1] - runs[number][0]
        closing[number] = latest.get(length, -1)
        latest[length] = number
    kept: list[str] = []
    number = start = 0
    while number < len(runs):
        if closing[number] < 0:
            number += 1
            continue
        kept.append(paragraph[start : runs[number][0]])
        start = runs[closing[number]][1]
        number = closing[number] + 1
    return " ".join([*kept, paragraph[start:]])


def _read_frontmatter_tags(frontmatter: str) -> list[str]:
    """Read the tags from YAML. What is not YAML, or too long, is searched for lines of tags, so that no private tag is lost."""
    if not re.search("tag", frontmatter, re.IGNORECASE):
        return []
    if len(frontmatter) <= MAX_FRONTMATTER:
        try:
            return list(_read_yaml_tags(frontmatter))
        except (yaml.YAMLError, ValueError):  # ValueError: an escape such as "\UFFFFFFFF"
            pass
    return _read_tag_lines(frontmatter)


def _read_tag_lines(frontmatter: str) -> list[str]:
    return [
        word for match in _TAG_LINE.finditer(frontmatter) for word in _split_tags(re.sub(r"[\[\]\"'{}]|- ", " ", match["value"]))
    ]


def _read_yaml_tags(frontmatter: str) -> Iterator[str]:
    """Yield the scalars below the keys `tags` and `tag`.

    Events are read instead of values: they need no recursion, and aliases are not expanded.
    """
    depth, key = 0, None
    for event in yaml.parse(frontmatter, Loader=_YAML_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            if depth == 1 and key is None:
                raise yaml.YAMLError("a key that is no scalar")
            depth += 1
            if depth > _MAX_DEPTH:
                raise yaml.YAMLError("too deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            key = None if depth == 1 else key
        elif isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("an alias")
        elif isinstance(event, yaml.ScalarEvent):
            if depth == 1 and key is None:
                key = event.value
                continue
            if (key or "").lower() in ("tags", "tag"):
                yield from _split_tags(event.value)
            key = None if depth == 1 else key


def _split_tags(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word.lstrip("#")]
