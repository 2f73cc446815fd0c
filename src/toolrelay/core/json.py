"""Types for JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    Json = Any  # msgspec, which decodes steps of the ledger, does not support recursive type aliases

JsonObject: TypeAlias = dict[str, Json]
