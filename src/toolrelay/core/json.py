"""What JSON can say, as a type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    Json = Any  # msgspec, which reads steps back out of the ledger, does not follow a type into itself

JsonObject: TypeAlias = dict[str, Json]
