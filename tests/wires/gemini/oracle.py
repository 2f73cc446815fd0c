"""Requests and frames checked with the types of Google's own SDK, which forbid members that they do not know."""

from __future__ import annotations

import json
from typing import Any

from google.genai import types

from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.wires.base import OutgoingRequest, discover_provider_wires

Json = dict[str, Any]

WIRE = discover_provider_wires()["gemini"]


def check_body(body: Json) -> None:
    """Check a request. Its members beside generationConfig are the SDK's GenerateContentConfig."""
    for content in body.pop("contents"):
        parsed = types.Content.model_validate_json(json.dumps(content))
        assert parsed.role in ("user", "model")
        assert parsed.parts
    config = body.pop("generationConfig", {})
    types.GenerationConfig.model_validate_json(json.dumps(config))
    schemas = [config.get("responseJsonSchema")]
    for tool in body.get("tools", ()):
        for declared in tool["functionDeclarations"]:
            assert declared["description"]
            schemas.append(declared.get("parametersJsonSchema"))
    for schema in schemas:
        if schema is not None:
            check_schema(schema)
    types.GenerateContentConfig.model_validate_json(json.dumps(body))


def check_schema(schema: Json) -> None:
    """Check a schema. The SDK's type lacks three members that the API's documentation has."""

    def without_others(value: Any) -> Any:
        if isinstance(value, list):
            return [without_others(each) for each in value]
        if not isinstance(value, dict):
            return value
        kept = {key: inner for key, inner in value.items() if key not in ("propertyOrdering", "prefixItems")}
        return {
            key: {name: without_others(each) for name, each in inner.items()} if key == "properties" else without_others(inner)
            for key, inner in kept.items()
            if key not in ("default", "enum")
        }

    types.JSONSchema.model_validate(without_others(schema))


def sent(request: Request, profile: Profile | None = None) -> tuple[Json, OutgoingRequest]:
    """Encode a request. Return its body, which the SDK's types allow."""
    outgoing = WIRE.encode_request(request, profile or Profile())
    check_body(json.loads(outgoing.body))
    body: Json = json.loads(outgoing.body)
    return body, outgoing


def checked(*frames: Json) -> tuple[Json, ...]:
    """Return the frames, which the SDK's types allow."""
    for frame in frames:
        if "error" not in frame:
            types.GenerateContentResponse.model_validate_json(json.dumps(frame))
    return frames
