"""The patches of one turn on rails: which are made, and when.

    what comes                                 what becomes of it
    ----------------------------------------   ---------------------------------------------------------------------------
    a patch that names a path off the rails    the turn fails, before Codex asks
    one more response with patches than may be the turn fails: nobody else would end the loop
    a request to make one, within a response   waits for the end of the response
    the same, beside a call of the client's    declined: the call ends the turn, and would end the patch halfway
    all others                                 by the rails

Codex reads the files that a patch names before it asks, and tells the model whether its lines were found there. A model could
guess at any file that way. It cannot be kept from reading, which begins when the gateway hears of the patch; but the turn is
ended at that moment, so what the model may say to the result reaches nobody.
"""

from __future__ import annotations

from toolrelay.backends.codex.json_access import text_of
from toolrelay.backends.codex.rails import Rails
from toolrelay.backends.codex.rpc import ServerRequest
from toolrelay.core.json import JsonObject
from toolrelay.errors import ModelError

APPROVAL = "item/fileChange/requestApproval"
MOST_ROUNDS = 10  # responses of one turn that hold patches, whatever became of these


class Patches:
    """`is_open`: the response at hand holds a patch, and has not ended. `asked`: the requests that wait for that."""

    def __init__(self, rails: Rails) -> None:
        self.is_open = False
        self.asked: list[ServerRequest] = []
        self._rails = rails
        self._changes: dict[str, JsonObject] = {}
        self._rounds = 0

    def read(self, patch: str) -> ModelError | None:
        """A patch in the model's own words, and why the turn cannot go on with it."""
        self.is_open = True
        if self._rounds >= MOST_ROUNDS:
            return ModelError("The model went on and on patching files, and was stopped.", code="too_many_rounds")
        stray = self._rails.stray(patch)
        if stray is not None:
            message = f"The model tried to patch {stray[:200]!r}, where it may not write, and was stopped."
            return ModelError(message, code="patch_off_rails")
        return None

    def begin(self, change: JsonObject) -> None:
        """A fileChange item."""
        self._changes[text_of(change, "id")] = change

    def decided(self, *, may: bool) -> list[tuple[ServerRequest, bool]]:
        """What was asked until now, and whether it is allowed. `may`: at all."""
        asked, self.asked = self.asked, []
        changes = [self._changes.get(text_of(request.params, "itemId"), {}) for request in asked]
        return [(request, may and self._rails.admits(change)) for request, change in zip(asked, changes, strict=True)]

    def end_response(self) -> None:
        self._rounds += self.is_open
        self.is_open = False
