"""`toolrelay keys`."""

from __future__ import annotations

import hashlib
import re
import tomllib

import pytest

from tests.cli.commands import Run, configure
from toolrelay.config import load


def test_new_key_is_printed_with_its_configuration_block(run: Run) -> None:
    code, out, err = run("keys", "new", 'Zoë\'s "laptop"', "--models", "fast", "--models", "home-*")
    key, _, block = out.partition("\n")
    assert code == 0
    assert re.fullmatch(r"tr-[A-Za-z0-9_-]{40}", key)
    assert key not in block + err
    configure(block)
    (settings,) = load(None, {}).keys
    assert settings.name == 'Zoë\'s "laptop"'
    assert settings.sha256 == hashlib.sha256(key.encode()).hexdigest()
    assert settings.models == ("fast", "home-*")


def test_new_key_without_models_may_use_every_model(run: Run) -> None:
    out = run("keys", "new", "me").out
    assert tomllib.loads(out.partition("\n")[2])["keys"][0]["models"] == ["*"]


def test_new_keys_differ(run: Run) -> None:
    assert run("keys", "new", "me").out != run("keys", "new", "me").out


@pytest.mark.parametrize("name", ["", " ", "a\nb", " a"])
def test_invalid_key_name_is_refused(run: Run, name: str) -> None:
    code, out, err = run("keys", "new", name)
    assert (code, out) == (2, "")
    assert "expected a name" in err


@pytest.mark.parametrize("given", ["tr-key", "tr-key\n", "tr-key\r\n"])
def test_hash_ignores_a_trailing_line_break(run: Run, given: str) -> None:
    assert run("keys", "hash", given=given) == (0, hashlib.sha256(b"tr-key").hexdigest() + "\n", "")


def test_hash_of_empty_input_is_refused(run: Run) -> None:
    code, out, err = run("keys", "hash", given="\n")
    assert (code, out) == (2, "")
    assert "expected a key, found nothing" in err
