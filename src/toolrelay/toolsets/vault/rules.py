"""Rules about notes: which files are notes, which are excluded, which are private."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from toolrelay.errors import ConfigurationError
from toolrelay.toolsets.vault.folding import fold_input

SUFFIX = ".md"
MAX_PATH_LENGTH = 1024  # characters
MAX_SHOWN_LENGTH = 120  # characters of a path in an error

_TAG_PREFIX = "tag:"
_DRIVE = re.compile(r"[A-Za-z]:(?! )")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Rules:
    """What `exclude` and `private` say. Paths are relative, with `/`. Case and accents do not matter."""

    def __init__(self, exclude: Iterable[str] = (), private: Iterable[str] = ()) -> None:
        """Raise ConfigurationError with one line for each pattern that cannot be used."""
        problems: list[str] = []
        private = tuple(private)
        tags = [rule[len(_TAG_PREFIX) :] for rule in private if rule.lower().startswith(_TAG_PREFIX)]
        globs = [rule for rule in private if not rule.lower().startswith(_TAG_PREFIX)]
        self._tags = {_fold_tag(tag, problems) for tag in tags}
        self._excluded = _compile_globs("exclude", exclude, problems)
        self._private = _compile_globs("private", globs, problems)
        if problems:
            raise ConfigurationError("\n".join(problems))
        self.key = repr((sorted(self._tags), [pattern.pattern for pattern in self._private]))

    @property
    def has_private_tags(self) -> bool:
        """Whether the content of a note decides if it is private."""
        return bool(self._tags)

    def excludes(self, path: str) -> bool:
        return _matches(self._excluded, path)

    def is_private_path(self, path: str) -> bool:
        return _matches(self._private, path)

    def is_private(self, path: str, tags: Collection[str] | None) -> bool:
        """`tags` None: not all of the content could be read. Then the note is private if a tag could make it so."""
        if self.is_private_path(path):
            return True
        return self.has_private_tags if tags is None else not self._tags.isdisjoint(tags)


def _fold_tag(tag: str, problems: list[str]) -> str:
    folded = fold_input(tag).strip().lstrip("#").strip("/")
    if not folded:
        problems.append('private: "tag:" has no name; expected tag:NAME')
    return folded


def _matches(patterns: Iterable[re.Pattern[str]], path: str) -> bool:
    folded = None
    for pattern in patterns:
        folded = fold_input(path) if folded is None else folded
        if pattern.fullmatch(folded):
            return True
    return False


def _compile_globs(key: str, globs: Iterable[str], problems: list[str]) -> list[re.Pattern[str]]:
    found = []
    for glob in globs:
        if not glob.strip("/ ") or "\\" in glob or ".." in glob.split("/"):
            problems.append(f"{key}: {glob!r} matches no note; expected a pattern such as Journal/** with / between folders")
            continue
        found.append(_compile_glob(fold_input(glob)))
    return found


def _compile_glob(glob: str) -> re.Pattern[str]:
    """Compile a pattern as of .gitignore: without `/` it matches at any depth, and a folder stands for all that is in it."""
    anchored = "/" in glob.rstrip("/")
    segments = [segment for segment in glob.split("/") if segment not in ("", ".")]
    if segments[-1] == "**" and len(segments) > 1:
        segments.pop()  # the folder, with all that is in it
    pattern = "".join(f"(?:{_compile_segment(segment)}/)" if segment != "**" else "(?:[^/]+/)*" for segment in segments[:-1])
    last = ".*" if segments[-1] == "**" else _compile_segment(segments[-1])
    return re.compile(f"{'' if anchored else '(?:.*/)?'}{pattern}{last}(?:/.*)?", re.DOTALL)


def _compile_segment(segment: str) -> str:
    pattern, place = "", 0
    while place < len(segment):
        character = segment[place]
        place += 1
        if character == "*":
            pattern += "" if pattern.endswith("[^/]*") else "[^/]*"
        elif character == "?":
            pattern += "[^/]"
        elif character == "[" and (end := segment.find("]", place + 1)) > 0:
            chosen = re.sub(r"([\\\[\]^&~|])", r"\\\1", segment[place + (segment[place] in "!^") : end])
            pattern += f"(?!/)[{'^' if segment[place] in '!^' else ''}{chosen}]"
            place = end + 1
        else:
            pattern += re.escape(character)
    return pattern


def check_path(path: str) -> str | None:
    """Say why no note can have this path, or return None. Nothing on the disk is looked at."""
    if not path.strip():
        return "the path is empty"
    if len(path) > MAX_PATH_LENGTH:
        return f"the path has {len(path):,} characters; {MAX_PATH_LENGTH:,} are allowed"
    if _CONTROL.search(path):
        return "the path contains a control character"
    if "\\" in path:
        return "the path contains a backslash; folders are separated by /"
    if path.startswith(("/", "~")) or _DRIVE.match(path):
        return "the path must be relative to the vault"
    parts = split_path(path)
    if ".." in parts:
        return "the path must not contain .."
    if any(part.startswith(".") for part in parts):
        return "hidden files and folders are not read"
    if not parts:
        return "the path names no file"
    return None


def split_path(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def is_note_name(name: str) -> bool:
    return name.lower().endswith(SUFFIX) and not name.startswith(".") and "\\" not in name and not _CONTROL.search(name)


def has_other_suffix(path: str) -> bool:
    """Whether the path names a file of another type, such as image.png."""
    return re.search(r"\.(?!md\Z)[A-Za-z][A-Za-z0-9]{1,4}\Z", path, re.IGNORECASE) is not None


def show_path(path: str) -> str:
    """Return the path for a message: not too long, and encodable."""
    shown = encodable(path)
    return shown if len(shown) <= MAX_SHOWN_LENGTH else f"{shown[:MAX_SHOWN_LENGTH]}…"


def encodable(path: str) -> str:
    """Replace bytes of a file's name that are not UTF-8."""
    return _SURROGATE.sub("\ufffd", path)
