"""The states of a session, and the transitions between them."""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """What is expected of the model. In the three waiting states its output is ignored and only its usage is still read."""

    READING = auto()
    CUT = auto()  # waiting: the answer ends with the calls made so far
    STOPPED = auto()  # waiting: a stop sequence was reached; the answer ends as if the model had stopped there
    REJECTED = auto()  # waiting: the model is asked again afterwards
    RETRY = auto()  # the model is to be asked again now
    ENDED = auto()


WAITING = frozenset({State.CUT, State.STOPPED, State.REJECTED})

TRANSITIONS = {
    State.READING: {State.CUT, State.STOPPED, State.REJECTED, State.ENDED},
    State.CUT: {State.ENDED},
    State.STOPPED: {State.READING},
    State.REJECTED: {State.RETRY},
    State.RETRY: {State.READING},
    State.ENDED: set(),
}

READING = State.READING  # looking a member up costs as much as a call, and every batch of events needs this one
