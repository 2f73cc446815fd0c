"""Copies the console's libraries from pinned npm packages: `make vendor`. A file that differs from its hash is an error.

vendor.json names packages, versions, files and their SHA-256. To take another version, change it there and run with --update.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[3] / "src" / "toolrelay" / "web" / "console" / "vendor"
LIST = FOLDER / "vendor.json"


def read_list() -> list[dict[str, Any]]:
    packages: list[dict[str, Any]] = json.loads(LIST.read_text())
    return packages


def copy_package(package: dict[str, Any], work: Path, *, update: bool) -> list[str]:
    """Copy the files of a package and return what is wrong with them. With `update`, record their hashes instead."""
    name = f"{package['name']}@{package['version']}"
    packed = subprocess.run(["npm", "pack", "--silent", name], cwd=work, check=True, capture_output=True, text=True)
    problems: list[str] = []
    with tarfile.open(work / packed.stdout.split()[-1]) as archive:
        for target, source in package["files"].items():
            member = archive.extractfile(f"package/{source['from']}")
            assert member is not None, f"{name} has no file {source['from']}"
            content = member.read()
            found = sha256(content).hexdigest()
            if update:
                source["sha256"] = found
            elif source["sha256"] != found:
                problems.append(f"{name}: {source['from']} has the hash {found}, not {source['sha256']}")
                continue
            (FOLDER / target).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / target).write_bytes(content)
    return problems


def main() -> int:
    update = "--update" in sys.argv[1:]
    packages = read_list()
    with tempfile.TemporaryDirectory() as work:
        problems = [problem for package in packages for problem in copy_package(package, Path(work), update=update)]
    if update:
        LIST.write_text(json.dumps(packages, indent=2) + "\n")
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
