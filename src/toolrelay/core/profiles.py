"""Capabilities and restrictions of a model's server."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Profile(Struct, frozen=True, kw_only=True):
    """The defaults describe a server that implements OpenAI's API without extensions.

    developer_role         accepts the role "developer"; otherwise such messages are sent as "system"
    max_tokens_field       its name for the token limit on Chat; None: the name that the client used
    stream_usage           can report usage at the end of a Chat stream
    call_ids               "nine": accepts only ids of nine letters and digits (Mistral)
    constrains_output      can constrain output to a JSON schema given as response_format
    offers_choice          a model of an unknown family is constrained to a choice between a call and an answer
    takes_tools            accepts tools, and its models call them; otherwise calls are asked for as text
    enforces_tool_choice   enforces tool_choice; otherwise a required call is asked for as text
    tool_names             "plain": accepts only names of letters, digits, _ and -, at most 64 characters
    whole_calls            sends each native call whole, and does not stop after it
    takes_stop_sequences   accepts stop sequences; otherwise they are emulated
    prints_calls           its models may print a call as text although tools are declared
    separates_reasoning    never sends reasoning as part of the text
    encrypts_reasoning     returns encrypted reasoning on request, and needs it back in the next turn, because it stores nothing
    key_header             the header for the key; empty: that of the wire
    refused_fields         fields of a request that it refuses; they are dropped, with a warning
    renamed_fields         fields of a Chat request under its own names: (OpenAI's, its own)
    refused_message_fields fields of Chat messages that it refuses; they are dropped, with a warning
    output_formats         the kinds of response_format that it accepts on Chat, besides text; others are replaced by the nearest
    takes_allowed_tools    accepts a tool_choice of type allowed_tools on Chat; otherwise only the allowed tools are declared
    needs_text_format      refuses `text` without a `format` on Responses
    reasoning_details      sends reasoning with signatures or encrypted as `reasoning_details` on Chat, and takes it back
    reasoning_fields       the names under which it reads earlier reasoning in Chat messages
    takes_null_content     accepts a message of the assistant without content on Chat; otherwise it gets empty text
    context_length         tokens of context to ask for, if the wire can; 0: the server's default
    keep_alive             time for which the server is to keep the model loaded, if the wire can; empty: the server's default
    takes_custom_tools     accepts custom tools, which take free text; otherwise they are declared as functions
    """

    developer_role: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    stream_usage: bool = True
    call_ids: Literal["any", "nine"] = "any"
    constrains_output: bool = False
    offers_choice: bool = False
    takes_tools: bool = True
    enforces_tool_choice: bool = True
    tool_names: Literal["any", "plain"] = "any"
    whole_calls: bool = False
    takes_stop_sequences: bool = True
    prints_calls: bool = False
    separates_reasoning: bool = False
    encrypts_reasoning: bool = False
    key_header: str = ""
    refused_fields: tuple[str, ...] = ()
    renamed_fields: tuple[tuple[str, str], ...] = ()
    refused_message_fields: tuple[str, ...] = ()
    output_formats: tuple[str, ...] = ("json_object", "json_schema")
    takes_allowed_tools: bool = True
    needs_text_format: bool = False
    reasoning_details: bool = False
    reasoning_fields: tuple[str, ...] = ("reasoning_content",)
    takes_null_content: bool = True
    context_length: int = 0
    keep_alive: str = ""
    takes_custom_tools: bool = True
