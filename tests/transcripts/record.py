"""RecordStep the transcripts again: `make transcripts`; of some models only: `make transcripts ARGS="hermes sealed"`."""

from __future__ import annotations

import sys
from pathlib import Path


def main(wanted: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.transcripts.session import open_session  # noqa: PLC0415 -- as above
    from tests.transcripts.storage import FOLDER, path_of, write  # noqa: PLC0415 -- as above
    from tests.transcripts.subjects import all_subjects  # noqa: PLC0415 -- needs the path above

    known = all_subjects()
    chosen = [known[name] for name in wanted or known]
    for together in (*([one] for one in chosen if one.is_codex), [one for one in chosen if not one.is_codex]):
        with open_session(together) as session:
            for subject in together:
                write(subject.name, session.play(subject))
    for stale in set(FOLDER.iterdir()) - {path_of(name) for name in known}:
        stale.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
