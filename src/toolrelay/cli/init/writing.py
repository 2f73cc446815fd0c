"""Writes the configuration file: whole or not at all, for this user only, after the gateway's own check of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from toolrelay.cli._output import FAILED, MISUSED, CommandError
from toolrelay.config import load, read_environment
from toolrelay.errors import ConfigurationError


def write(path: Path, text: str, key_variable: str, *, replaces: bool) -> None:
    """Write the file with mode 0600. Raise CommandError if it is there already, or would be refused."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}.", FAILED) from None
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        environ = {key_variable: "set-later"} if key_variable else {}
        load(name, {**read_environment(), **environ})
        if replaces:
            draft.replace(path)
        else:
            os.link(draft, path)  # unlike a rename, it never replaces a file
    except ConfigurationError as error:
        raise CommandError(
            f"These answers make no valid configuration:\n{error.message.replace(name, str(path))}", MISUSED
        ) from None
    except FileExistsError:
        raise CommandError(f"{path} exists. --force replaces it, --config names another file.", MISUSED) from None
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}.", FAILED) from None
    finally:
        draft.unlink(missing_ok=True)
