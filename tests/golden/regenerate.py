"""Regenerate the transcripts of the golden exchanges: `make golden`."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.golden.transcripts import ways  # noqa: PLC0415 -- needs the path above

    wanted = {way.expected: way.transcript() for way in ways()}
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for stale in {path for way in wanted for path in way.parent.iterdir()} - set(wanted):
        stale.unlink()


if __name__ == "__main__":
    main()
