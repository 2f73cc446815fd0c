"""A gateway on a database of an earlier version, whose turns are older than retention."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.gateway import running

FIXTURES = sorted((Path(__file__).parent / "stores" / "fixtures").glob("version-*.sql"))


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda file: file.stem)
def test_gateway_starts_although_an_old_parked_turn_is_pruned(fixture: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o700)
    with closing(sqlite3.connect(data_dir / "toolrelay.db")) as database:
        database.executescript(fixture.read_text())
    with running(None, folder=tmp_path) as gateway:
        assert gateway.get("/readyz").status_code == 200
        assert "not_resumed" not in gateway.log()
