"""The program of the child process: llama.cpp's own server on loopback, until standard input closes.

It reads its options as one line of JSON and prints its address, or an error, as one line. It is run by its path and imports
nothing of the gateway, so that it starts quickly.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

PROMPT_CACHE_MIB = 256  # llama.cpp's own default is 8 GiB
WARNINGS = 2  # a level of llama.cpp's log; lower ones may quote prompts


def main() -> None:
    options: dict[str, Any] = json.loads(sys.stdin.readline())
    try:
        import xllamacpp  # type: ignore[import-untyped]  # noqa: PLC0415 -- a failure is reported, too

        server = xllamacpp.Server(_params(xllamacpp, options))
        has_guidance = xllamacpp.json_schema_to_grammar({}).startswith("%llguidance")
    except Exception as error:  # noqa: BLE001 -- the gateway reports it
        _print({"error": f"{error}"})
        return
    _print({"address": server.listening_address, "has_guidance": has_guidance})
    sys.stdin.read()
    os._exit(0)  # the server's own end would wait for the answers that it writes


def _params(xllamacpp: Any, options: dict[str, Any]) -> Any:  # noqa: ANN401 -- the package has no types
    params = xllamacpp.CommonParams()
    params.model.path = options["model"]
    params.model_alias = {options["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [options["key"]]
    params.n_parallel = options["parallel"]
    params.n_ctx = options["context_length"] * options["parallel"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.fit_params = False  # it would shrink the context silently, and takes minutes for a large one
    params.ui = params.endpoint_slots = False
    params.cors_origins = ""
    params.verbosity = WARNINGS
    return params


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
