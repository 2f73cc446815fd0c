"""The forms in which a native model may print calls all the same: its family's own, and `<use_tool>` blocks.

Models repeat forms that they have seen in prompts, and `<use_tool>` is the most widespread of those. A block is caught only as a
whole, so that nothing of it is visible before it is certain to be a call:

    block                                            result
    ----------------------------------------------   ---------------------------------------------------------------
    of an offered tool                               a call; closing tags in excess are removed, too
    of another tool, or without a name               text
    of an offered tool, malformed or not finished    a broken call (`is_remnant`)
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from toolrelay.dialects.base import Dialect
from toolrelay.dialects.tagged_parameters import tagged_call
from toolrelay.dialects.use_tool import DIALECTS, FORM
from toolrelay.parsing.errors import MalformedCallError, NotACallError
from toolrelay.parsing.grammar import CallRecorder, CallSink
from toolrelay.parsing.stream_reader import Parse, Reader

_BLOCKS = DIALECTS[0]
_OPEN, _CLOSE = FORM.frame.call, FORM.frame.ends[0]


def caught_forms(dialect: Dialect) -> Dialect:
    """Return blocks and the model's own form as one dialect. A sealed form is asked for, never caught."""
    return _ONLY_BLOCKS if dialect.seal is not None else _with_blocks(dialect)


@lru_cache(maxsize=64)
def _with_blocks(dialect: Dialect) -> Dialect:
    own = dialect.grammar

    def parse(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
        return (_parse_block if marker == _OPEN else own)(reader, sink, marker)

    return replace(
        dialect,
        grammar=parse,
        start_markers=(*dialect.start_markers, *_BLOCKS.start_markers),
        end_markers=(*dialect.end_markers, *_BLOCKS.end_markers),
    )


def is_remnant(text: str, rule: str) -> bool:
    """Return whether a broken call is a block that ended, or that the answer's end cut off: no text for a reader."""
    return text.startswith(_OPEN) and (rule == "cut" or text.rstrip().endswith(_CLOSE))


def _parse_block(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from reader.skip_blanks()
    yield from reader.expect("<name>")
    name = yield from reader.read_name("</name>")
    if name not in sink.tools:
        raise NotACallError
    recorder = CallRecorder(sink.tools)
    try:
        yield from tagged_call(reader, recorder, FORM, name)
    except NotACallError:
        raise MalformedCallError("malformed") from None
    recorder.emit_to(sink)
    while (yield from reader.accept_after_blanks(_CLOSE)):
        pass


_ONLY_BLOCKS = replace(_BLOCKS, grammar=_parse_block)
