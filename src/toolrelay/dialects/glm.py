"""GLM 4.5, 4.6, 4.7 and 5, Hy 3 and LongCat Lite: a pair of tags for each argument. GLM 4.5 and 4.6 put each part on a line of
its own, later ones do not. Hy 3 has an outer tag and a mark after the name, and its tags have a suffix; those of LongCat Lite
have a prefix, `longcat_`.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </tool_call>

Hy 3:  <tool_calls:opensource>
       <tool_call:opensource>get_weather<tool_sep:opensource>
       …

Sources: llama.cpp's templates GLM-4.6 and tencent-Hy3, SGLang's glm47_moe_detector, vLLM's test_hy_v3_tool_parser (no suffix),
mlx-lm's parser longcat (calls only).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.rendering import Argument, framed_results, tools_section
from toolrelay.dialects.tagged_parameters import TagForm, render_parameters, tagged_call
from toolrelay.parsing.errors import NotACallError, TruncatedCallError
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.stream_reader import NAME, Parse, Reader


def _form(suffix: str = "", *, prefix: str = "", in_block: bool = False) -> TagForm:
    def tag(name: str) -> str:
        bare = name.removeprefix("/")
        return f"<{name[: -len(bare)]}{prefix}{bare}{suffix}>"

    return TagForm(
        key_open=tag("arg_key"),
        key_close=tag("/arg_key"),
        value_open=tag("arg_value"),
        value_close=tag("/arg_value"),
        frame=CallFrame(
            call=tag("tool_call"),
            name_ends=(tag("tool_sep"), tag("arg_key"), "\n", tag("/tool_call")),
            ends=(tag("/tool_call"),),
            opens=(tag("tool_calls"),) if in_block else (),
            closes=(tag("/tool_calls"),) if in_block else (),
        ),
    )


FORM = _form()
LONGCAT = _form(prefix="longcat_")
HY = _form(":opensource", in_block=True)
_HY_FORMS = (HY, _form(in_block=True))
_HY_LINES = replace(HY, value_open=f"\n{HY.value_open}")


def grammar(reader: Reader, sink: CallSink, _marker: str, form: TagForm = FORM) -> Parse[None]:
    yield from reader.skip_blanks()
    name = yield from reader.read_match(NAME)
    yield from reader.accept_after_blanks(form.frame.name_ends[0])
    yield from reader.skip_blanks()
    is_over = not (yield from reader.peek())
    if is_over and not (reader.complete and name in sink.tools):
        raise TruncatedCallError
    if not name or not (is_over or (yield from reader.is_ahead(form.key_open, *form.frame.ends, *form.frame.closes))):
        raise NotACallError
    yield from tagged_call(reader, sink, form, name)


def _hy_grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    form = next(form for form in _HY_FORMS if marker in (form.frame.call, *form.frame.opens))
    frame = form.frame
    if marker != frame.call:
        yield from reader.skip_blanks()
        yield from reader.expect(frame.call)
    while True:
        yield from grammar(reader, sink, marker, form)
        if not (yield from reader.accept_after_blanks(frame.call)):
            break
    yield from reader.accept_after_blanks(*frame.closes)


def _hy_calls(calls: Sequence[Call]) -> str:
    frame = HY.frame
    written = "".join(
        f"{frame.call}{call.name}{frame.name_ends[0]}\n{render_parameters(call, _HY_LINES)}{frame.ends[0]}\n" for call in calls
    )
    return f"{frame.opens[0]}\n{written}{frame.closes[0]}"


def _hy_results(results: Sequence[ToolResult]) -> str:
    written = framed_results("<tool_response:opensource>\n", "\n</tool_response:opensource>\n", "")(results)
    return f"<tool_responses:opensource>\n{written}</tool_responses:opensource>"


def _hy_tools(tools: Sequence[Tool]) -> str:
    frame = HY.frame
    pairs = "\n".join(_HY_LINES.render(Argument(f"{{arg-key-{n}}}", "", f"{{arg-value-{n}}}")) for n in (1, 2))
    return f"""{tools_section(tools)}For function call returns, you should first print {frame.opens[0]}
For each function call, you should return object like:
{frame.call}{{function-name}}{frame.name_ends[0]}
{pairs}
...
{frame.ends[0]}
At the end of function call returns, you should print {frame.closes[0]}"""


def _render_calls(calls: Sequence[Call], line: str, form: TagForm) -> str:
    lines, frame = replace(form, value_open=f"{line}{form.value_open}"), form.frame
    return line.join(f"{frame.call}{call.name}{line}{render_parameters(call, lines, line)}{frame.ends[0]}" for call in calls)


def _render_tools(tools: Sequence[Tool], line: str, form: TagForm) -> str:
    lines, frame = replace(form, value_open=f"{line}{form.value_open}"), form.frame
    example = line.join(
        (
            f"{frame.call}{{function-name}}",
            *(lines.render(Argument(f"{{arg-key-{n}}}", "", f"{{arg-value-{n}}}")) for n in (1, 2)),
            "...",
            frame.ends[0],
        )
    )
    return (
        f"{tools_section(tools)}For each function call, output the function name and arguments within the following XML format:\n"
        + example
    )


def _dialect(name: str, line: str, form: TagForm = FORM) -> Dialect:
    return Dialect(
        name=name,
        start_markers=(StartMarker(form.frame.call), StartMarker(f"{form.frame.call[:-1]} >")),
        end_markers=form.frame.ends,
        stray_marks=("<|role_end|>",),  # of Ling
        grammar=lambda reader, sink, marker: grammar(reader, sink, marker, form),
        render_calls=lambda calls: _render_calls(calls, line, form),
        render_results=framed_results(f"<tool_response>{line}", f"{line}</tool_response>", line),
        render_tools=lambda tools: _render_tools(tools, line, form),
    )


DIALECTS = (
    _dialect("glm45", "\n"),
    _dialect("glm47", ""),
    _dialect("longcat_lite", "\n", LONGCAT),
    Dialect(
        name="hy3",
        start_markers=tuple(StartMarker(mark) for form in _HY_FORMS for mark in (*form.frame.opens, form.frame.call)),
        end_markers=tuple(mark for form in _HY_FORMS for mark in (*form.frame.ends, *form.frame.closes)),
        grammar=_hy_grammar,
        render_calls=_hy_calls,
        render_results=_hy_results,
        render_tools=_hy_tools,
    ),
)
