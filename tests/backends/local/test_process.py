"""The start of a process that ends before it is ready."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from toolrelay.backends.local.process import LlamaProcess
from toolrelay.errors import BackendError


async def load(program: str) -> str:
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=pipe, stdout=pipe, stderr=pipe)
    process = LlamaProcess(started, "key")
    try:
        with pytest.raises(BackendError) as caught:
            await process.load(b"{}\n", Path("a.gguf"), 60)
    finally:
        await process.close()
    return caught.value.message


@pytest.mark.parametrize(
    ("ending", "reason"), [("os._exit(3)", "ended with exit code 3"), ("os.abort()", "was ended by signal 6")]
)
def test_end_without_a_word_is_described_by_its_exit_code(ending: str, reason: str) -> None:
    """The pipes close before the process ends."""
    message = asyncio.run(load(f"import os; os.close(1); os.close(2); list(range(10**6)); {ending}"))
    assert message == f"llama.cpp cannot load a.gguf: {reason}"
