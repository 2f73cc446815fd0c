"""What listens to a model's text. None: it is text as it comes."""

from __future__ import annotations

from msgspec.structs import replace

from toolrelay.dialects._asking import Asking
from toolrelay.dialects._manner import Manner
from toolrelay.dialects._scanner import Scanner


def ear(asking: Asking, manner: Manner) -> Scanner | None:
    quoting = manner.quoting
    if asking.tools and (asking.prints or manner.catches):
        if asking.is_constrained:  # a model that is held to a schema has no room to ponder first
            quoting = replace(quoting, begins_in_reasoning=False)
        return Scanner(asking.dialect, asking.known(), quoting)
    if asking.prints and quoting.reasoning is not None:
        return Scanner(replace(asking.spoken, openers=()), {}, quoting)
    return None


def ear_for_the_thoughtless(asking: Asking, manner: Manner) -> Scanner:
    """For a text of which nothing was reasoning."""
    spoken = asking.dialect if asking.tools else replace(asking.spoken, openers=())
    return Scanner(spoken, asking.known(), replace(manner.quoting, reasoning=None, begins_in_reasoning=False))
