"""Whole exchanges over HTTP equal their recorded transcripts, except ids and times. record.py records them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from tests.transcripts.scenarios import Subject
from tests.transcripts.session import Session, open_session
from tests.transcripts.storage import FOLDER, RecordedTranscripts, path_of
from tests.transcripts.subjects import all_subjects

SUBJECTS = all_subjects()
_MAX_SHOWN = 3


def has_own_gateway(subject: Subject) -> bool:
    return subject.is_stateful or subject.is_codex


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with open_session([subject for subject in SUBJECTS.values() if not has_own_gateway(subject)]) as session:
        yield session


@pytest.mark.parametrize("name", SUBJECTS)
def test_exchanges_match_the_recorded_transcripts(name: str, request: pytest.FixtureRequest) -> None:
    subject, recording = SUBJECTS[name], RecordedTranscripts(name)
    if has_own_gateway(subject):
        with open_session([subject]) as own:
            exchanges = own.play(subject)
            if subject.is_codex:  # its usage is awaited for only 100 ms after a call: a busy machine may miss it
                exchanges |= own.play(subject, recording.differences(exchanges))
    else:
        session: Session = request.getfixturevalue("session")
        exchanges = session.play(subject)
    assert len(recording.cells) == len(exchanges), "run `make transcripts` and look at the difference"
    found = recording.differences(exchanges)
    shown = "\n\n".join(f"{name}: {combination}\n{difference}" for combination, difference in islice(found.items(), _MAX_SHOWN))
    assert not found, f"{len(found)} of {len(exchanges)} exchanges differ from the record; the first are:\n{shown}"


def test_every_recorded_file_belongs_to_a_model() -> None:
    assert set(FOLDER.iterdir()) == {path_of(name) for name in SUBJECTS}
