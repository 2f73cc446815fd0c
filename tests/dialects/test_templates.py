"""Results and tools as the models' own chat templates write them.

Each text is copied from the template's output for two results, "Fog" and "noon", and for one tool. Templates: llama.cpp's
models/templates and vLLM's examples.
"""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import ToolResult
from toolrelay.toolcalls.results import escape_result, has_end_delimiter

RESULTS = {
    # deepseek-ai-DeepSeek-V4
    "deepseek_v4": "<tool_result>Fog</tool_result>\n\n<tool_result>noon</tool_result>",
    # tool_chat_template_granite
    "granite": (
        "<|start_of_role|>tool_response<|end_of_role|>Fog<|end_of_text|>\n<|start_of_role|>tool_response<|end_of_role|>noon"
    ),
    # GigaChat3.1-10B-A1.8B
    "gigachat3": "function result<|role_sep|>\nFog<|message_sep|>\n\nfunction result<|role_sep|>\nnoon",
    # LFM2-8B-A1B, which has a message for each
    "lfm2": "<|tool_response_start|>Fog<|tool_response_end|>\n<|tool_response_start|>noon<|tool_response_end|>",
    # LFM2.5-8B-A1B
    "lfm25": "<|im_start|>tool\nFog<|im_end|>\n<|im_start|>tool\nnoon",
    # meta-llama-Llama-3.1-8B-Instruct
    "llama3_json": (
        '<|start_header_id|>ipython<|end_header_id|>\n\n"Fog"<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n"noon"'
    ),
    # Qwen3.5-4B
    "qwen35": "<tool_response>\nFog\n</tool_response>\n<tool_response>\nnoon\n</tool_response>",
    # MiniMax-M3
    "minimax_m3": "<response>Fog</response>\n<response>noon</response>",
}
NOW = Tool(name="now", description="The time.", parameters={"type": "object", "properties": {}})
FUNCTION = '{"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}'
OPENAI = f'{{"type": "function", "function": {FUNCTION}}}'
TOOLS = {
    "deepseek_v4": f"""### Available Tool Schemas

{FUNCTION}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.""",
    "deepseek_v32": f"<functions>\n{FUNCTION}\n</functions>",
    "qwen35": f"You have access to the following functions:\n\n<tools>\n{OPENAI}\n</tools>\n\nIf you choose",
    "lfm2": f"List of tools: <|tool_list_start|>[{OPENAI}]<|tool_list_end|>",
    "lfm25": f"List of tools: [{OPENAI}]",
    "minimax_m3": f"<tools>\n<tool>{FUNCTION}</tool>\n</tools>",
    "minicpm5": f"<tools>\n{OPENAI}\n</tools>",
    "hy3": f"<tools>\n{OPENAI}\n</tools>\n\nFor function call returns, you should first print <tool_calls:opensource>\n",
    "functionary31": f"Use the function 'now' to 'The time.'\n{FUNCTION}\n\n",
    "functionary32": "namespace functions {\n\n// The time.\ntype now = () => any;\n\n} // namespace functions",
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_written_as_in_the_template(name: str) -> None:
    results = [ToolResult(call=call(called), text=text) for called, text in (("get_weather", "Fog"), ("now", "noon"))]
    assert DIALECTS[name].render_results(results) == RESULTS[name]


@pytest.mark.parametrize("name", TOOLS)
def test_tools_are_written_as_in_the_template(name: str) -> None:
    render = DIALECTS[name].render_tools
    assert render is not None
    assert TOOLS[name] in render([NOW])


@pytest.mark.parametrize(
    ("name", "mark"),
    [("llama3_json", "<|eot_id|>"), ("granite", "<|end_of_text|>"), ("gigachat3", "<|message_sep|>"), ("lfm25", "<|im_end|>")],
)
def test_mark_between_results_cannot_come_from_a_result(name: str, mark: str) -> None:
    """The turn of the last result is ended by the template, so the user's text does not follow in the same message."""
    assert escape_result(f"a{mark}b", DIALECTS[name]) == f"a{mark[0]} {mark[1:]}b"
    assert not has_end_delimiter(DIALECTS[name])
