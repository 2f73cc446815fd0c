"""Where a model's file is looked for, what is said if it is not there, and how many threads it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.llama import model_file
from toolrelay.backends.local import BACKEND
from toolrelay.backends.local.model_files import KNOWN_MODELS, find_model_file, models_directory
from toolrelay.backends.local.settings import default_threads
from toolrelay.config import load
from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment


def find(tmp_path: Path, written: str) -> Path:
    return find_model_file("m", written, Environment(data_dir=tmp_path / "data", config_dir=tmp_path))


def test_known_model_is_found_in_its_package(tmp_path: Path) -> None:
    assert find(tmp_path, "smollm2") == model_file()
    assert model_file().stat().st_size == KNOWN_MODELS["smollm2"].size


def test_known_model_that_is_missing_is_an_error_that_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.backends.local.model_files.installed_file", lambda _model: None)
    with pytest.raises(ConfigurationError, match=r"models\.m\.model: smollm2 .* Get it with `toolrelay pull smollm2`"):
        find(tmp_path, "smollm2")


@pytest.mark.parametrize("place", ["beside", "pulled", "absolute"])
def test_path_is_found_beside_the_configuration_or_among_pulled_models(tmp_path: Path, place: str) -> None:
    folder = models_directory(tmp_path / "data") if place == "pulled" else tmp_path
    path = folder / "owner" / "repo" / "a.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    written = str(path) if place == "absolute" else "hf:owner/repo/a.gguf" if place == "pulled" else "owner/repo/a.gguf"
    assert find(tmp_path, written) == path


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("smolm2", r"expected smollm2 or the path of a \.gguf file, found 'smolm2'; did you mean smollm2\?"),
        ("missing.gguf", r"there is no file .*/missing\.gguf$"),
        ("hf:o/r/missing.gguf", r"get it with `toolrelay pull hf:o/r/missing\.gguf`"),
        ("text.gguf", r"text\.gguf is not a GGUF file"),
        ("empty.gguf", r"empty\.gguf is not a GGUF file"),
        ("~no-such-user/a.gguf", r"models\.m\.model: ~no-such-user/a\.gguf cannot be read: Could not determine home"),
        ("a" * 300 + ".gguf", r"a\.gguf cannot be read: File name too long"),
    ],
)
def test_file_that_cannot_be_used_is_an_error(tmp_path: Path, written: str, problem: str) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ConfigurationError, match=problem):
        find(tmp_path, written)


@pytest.mark.parametrize(("key", "expected"), [("threads = 513", "from 0 to 512"), ("parallel = 257", "from 1 to 256")])
def test_number_beyond_llama_cpps_limit_is_an_error(tmp_path: Path, key: str, expected: str) -> None:
    file = tmp_path / "toolrelay.toml"
    file.write_text(f'[models.m]\nprovider = "local"\n{key}\n')
    with pytest.raises(ConfigurationError, match=expected):
        load(str(file), {})


def test_data_directory_that_cannot_be_read_offers_no_model(tmp_path: Path) -> None:
    assert BACKEND.sample is not None
    assert BACKEND.sample(tmp_path / ("a" * 300)) is None


def test_pulled_model_is_offered_beside_demo_without_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [*load(None, {}, data_dir=str(tmp_path)).models] == ["demo"]
    folder = models_directory(tmp_path)
    folder.mkdir()
    (folder / KNOWN_MODELS["smollm2"].file).symlink_to(model_file())
    assert [*load(None, {}, data_dir=str(tmp_path)).models] == ["demo", "local"]
    (tmp_path / "toolrelay.toml").write_text("[server]\nport = 9000\n")
    assert [*load(None, {}, data_dir=str(tmp_path)).models] == ["demo"]


def test_cut_file_is_not_offered(tmp_path: Path) -> None:
    folder = models_directory(tmp_path)
    folder.mkdir()
    (folder / KNOWN_MODELS["smollm2"].file).write_bytes(b"GGUF")
    assert BACKEND.sample is not None
    assert BACKEND.sample(tmp_path) is None


def test_local_model_counts_as_local_by_default(tmp_path: Path) -> None:
    file = tmp_path / "toolrelay.toml"
    file.write_text('[models.a]\nprovider = "local"\n[models.b]\nprovider = "local"\nlocal = false\n')
    models = load(str(file), {}, data_dir=str(tmp_path)).models
    assert (models["a"].local, models["b"].local, models["demo"].local) == (True, False, False)


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 64), ("200000 100000", 2), ("50000 100000", 1), ("junk", 64)])
def test_threads_leave_a_core_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr("toolrelay.backends.local.settings._QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: range(64))
    assert default_threads() == min(8, max(1, cores - 1))
