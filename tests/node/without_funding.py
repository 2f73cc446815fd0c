"""Takes the addresses of sponsors out of package-lock.json, where npm has no setting for it: a lock names no host."""

from __future__ import annotations

import json
from pathlib import Path

LOCK = Path(__file__).with_name("package-lock.json")

lock = json.loads(LOCK.read_text(encoding="utf-8"))
for package in lock["packages"].values():
    package.pop("funding", None)
LOCK.write_text(json.dumps(lock, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
