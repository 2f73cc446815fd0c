"""A client's request, independent of the wire."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeGuard

from msgspec import Struct

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import CallKind, Item


class Tool(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A function or custom tool that the model may call. `format` is a custom tool's grammar."""

    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None
    kind: CallKind = "function"
    format: JsonObject | None = None
    extra: JsonObject | None = None


class OpaqueTool(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A tool that only its wire can represent: a provider's own, such as web_search, or a group of tools.

    `tools` are those of a group. A namespace's are called by their name together with `namespace`. `in_input`: the group is an
    item of the conversation (additional_tools), which declares it on its own wire.
    """

    wire: str
    raw: JsonObject
    tools: tuple[Tool | OpaqueTool, ...] = ()
    namespace: str | None = None
    in_input: bool = False


AnyTool: TypeAlias = Tool | OpaqueTool


def is_input_group(tool: AnyTool) -> TypeGuard[OpaqueTool]:
    return isinstance(tool, OpaqueTool) and tool.in_input


ALLOWED_TOOLS = "allowed_tools"  # the type of a tool_choice that lists tools


class ToolChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`named` requires the one tool in `names`; in other modes `names`, if any, are the allowed tools (allowed_tools).

    `raw` is a choice that only the client's wire can represent: a hosted tool, or allowed tools of which one is hosted; then
    `names` are the others. `reads_calls`: with `none`, a model that prints its calls still has its tools described, and calls
    that it prints are dropped instead of shown as text.
    """

    mode: Literal["auto", "none", "required", "named"] = "auto"
    names: tuple[tuple[CallKind, str], ...] = ()
    raw: JsonObject | None = None
    reads_calls: bool = False

    @property
    def is_list(self) -> bool:
        """Return whether only the tools in `names`, and hosted ones in `raw`, may be called."""
        return bool(self.names) or (self.raw is not None and self.raw.get("type") == ALLOWED_TOOLS)

    def allows(self, kind: CallKind, name: str) -> bool:
        return self.mode != "none" and (not self.is_list or (kind, name) in self.names)


class OutputFormat(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    description: str | None = None
    schema: JsonObject | None = None
    strict: bool | None = None


class ReasoningOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    effort: str | None = None
    summary: str | None = None
    encrypted: bool = False
    extra: JsonObject | None = None


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling parameters. None: not given, so the provider's default applies.

    `max_tokens_field` is the client's name for `max_output_tokens` on Chat, which has two.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    stop: str | tuple[str, ...] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    n: int | None = None
    verbosity: str | None = None


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`wire` is the client's; `extra` holds request fields that this gateway does not know.

    `headers` are those that the client's wire passes on to a provider of the same wire.
    `key` is the id of the client's API key. It comes from the gateway, not from the request. `store`: the response
    can be retrieved later. `background`: the turn goes on without its client. `takes_gateway_tools` is False if the client wants
    none (x-toolrelay-tools: off). `reads_blocks`: the client runs `<use_tool>` blocks itself, so they stay in the text.
    """

    wire: str
    model: str
    items: tuple[Item, ...]
    instructions: str | None = None
    tools: tuple[AnyTool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    sampling: Sampling = Sampling()
    output: OutputFormat | None = None
    reasoning: ReasoningOptions | None = None
    stream: bool = False
    include_usage: bool = False
    include: tuple[str, ...] = ()
    metadata: dict[str, str] | None = None
    store: bool | None = None
    background: bool = False
    previous_response_id: str | None = None
    conversation: str | None = None
    user: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    truncation: str | None = None
    legacy_functions: bool = False
    key: str | None = None
    takes_gateway_tools: bool = True
    reads_blocks: bool = False
    headers: dict[str, str] | None = None
    extra: dict[str, Json] | None = None

    def functions(self) -> tuple[Tool, ...]:
        """Return the tools that can be called by their name alone, in the client's order."""
        found = tuple([tool for tool in self.tools if isinstance(tool, Tool)])
        if len(found) == len(self.tools):
            return found
        return found + tuple(
            [tool for group in self.tools if is_input_group(group) for tool in group.tools if isinstance(tool, Tool)]
        )
