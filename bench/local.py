"""Tokens per second of a local model through the gateway, beside llama.cpp's own server. Part of `make bench`.

  bench/local.py                              seven pairs of answers of 128 tokens, about a minute
  bench/local.py --pairs 3 --tokens 32

Both run the same build of llama.cpp with the same options, each in a process of its own, and answer the same prompt as a stream.
Answers of the two alternate, and the ratio is the median of the ratios within pairs, because a busy machine slows both. Of an
answer, the time from the request to the end of the stream counts. The first pair warms up and is left out.

Exit code 1: an answer was wrong or missing, so that the figures mean nothing. A missed target is not an error.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from toolrelay.backends.local import llama_server
from toolrelay.backends.local.model_files import KNOWN_MODELS, find_known
from toolrelay.backends.local.settings import default_threads
from toolrelay.config import process_environment

TARGET = 0.95
_CONTEXT = 2048
_KEY = "bench"
_PROMPT = "Tell me what you know about the quick brown fox and the lazy dog."
_TIMEOUT_S = 300.0


class WrongAnswerError(Exception):
    """A wrong or missing answer."""


@contextmanager
def bare_server(model: Path) -> Iterator[str]:
    """Run llama.cpp's server, and yield its address."""
    options = {"model": str(model), "name": "local", "key": _KEY, "context_length": _CONTEXT, "parallel": 1}
    program = [sys.executable, llama_server.__file__]
    # A session of its own, as in the gateway: Linux shares a busy processor between sessions, and twice as much was measured.
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(options | {"threads": default_threads()}).encode() + b"\n")
        process.stdin.flush()
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.kill()


@contextmanager
def gateway(model: Path) -> Iterator[str]:
    """Run the gateway with the model `local`, and yield its address."""
    with tempfile.TemporaryDirectory(prefix="toolrelay-bench-") as name:
        config = Path(name, "toolrelay.toml")
        config.write_text(f'[models.local]\nprovider = "local"\nmodel = "{model}"\ncontext_length = {_CONTEXT}\n')
        command = [sys.executable, "-m", "toolrelay", "serve", "--port", "0", "--config", str(config)]
        command += ["--data-dir", str(Path(name, "data"))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().rpartition(" ")[2].strip()
            finally:
                process.terminate()


def tokens_per_second(url: str, tokens: int) -> float:
    """Stream one answer of exactly so many tokens."""
    body = {
        "model": "local",
        "messages": [{"role": "user", "content": _PROMPT}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    started = time.perf_counter()
    headers = {"content-type": "application/json", "authorization": f"Bearer {_KEY}"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    usage = 0
    while line := response.readline():
        if line.startswith(b'data: {"') and b'"usage":{' in line:
            usage = json.loads(line[6:])["usage"]["completion_tokens"]
    seconds = time.perf_counter() - started
    connection.close()
    if response.status != 200 or usage != tokens:
        raise WrongAnswerError(f"{url}: status {response.status}, {usage} tokens")
    return tokens / seconds


def measure(model: Path, pairs: int, tokens: int) -> list[tuple[float, float]]:
    """Return tokens per second of llama.cpp's server and of the gateway, for each pair."""
    with bare_server(model) as bare, gateway(model) as relayed:
        measured = []
        for number in range(pairs + 1):
            order = (bare, relayed) if number % 2 else (relayed, bare)
            speeds = {url: tokens_per_second(url, tokens) for url in order}
            measured.append((speeds[bare], speeds[relayed]))
        return measured[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    model = find_known(KNOWN_MODELS["smollm2"], process_environment().data_dir)
    if model is None:
        print("The model is missing: run `toolrelay pull smollm2`.", file=sys.stderr)
        return 1
    try:
        measured = measure(model, options.pairs, options.tokens)
    except (WrongAnswerError, OSError, KeyError, ValueError) as error:
        print(f"invalid: {error}", file=sys.stderr)
        return 1
    ratios = [relayed / bare for bare, relayed in measured]
    ratio = statistics.median(ratios)
    print(f"local model, {options.tokens} tokens, {default_threads()} thread(s), median of {options.pairs} pairs")
    for label, speeds in zip(("llama.cpp's own server", "toolrelay"), zip(*measured, strict=True), strict=True):
        print(f"  {label:24}{statistics.median(speeds):8.1f} tokens/s   {min(speeds):.1f} to {max(speeds):.1f}")
    verdict = "ok" if ratio >= TARGET else "MISSED"
    print(f"  {'ratio':24}{ratio:8.3f}            {min(ratios):.3f} to {max(ratios):.3f}   target >= {TARGET}   {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
