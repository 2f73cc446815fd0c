"""Cost of the vault: the first index, a start, searches, a changed note, memory. Part of `make bench`.

  bench/vault.py                       10,000 notes of 10 KB, about two minutes
  bench/vault.py --notes 1000          a smaller vault
  bench/vault.py --directory /mnt/x    on another disk; default: the system's directory for temporary files

The vault is generated, always the same: words of a language that does not exist, with accents, as frequent as words are; one note
in ten has Chinese and Japanese sentences. Searches go through the toolset, as a call of a model does, for ten results with their
counts and previews. A plain scan (read and fold every note) and ripgrep, if it is installed, run the first queries of each kind.
"""

import argparse
import asyncio
import itertools
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import uvloop

from toolrelay import log
from toolrelay.settings import Environment
from toolrelay.toolsets.base import ToolContext, Toolset
from toolrelay.toolsets.vault import KIND, VaultSettings
from toolrelay.toolsets.vault.folding import fold_input
from toolrelay.toolsets.vault.query import parse_query

_NOTES = 10_000
_NOTE_BYTES = 10_000
_QUERIES = 200  # of each kind
_WORDS = 60_000
_SCANS = 2  # of each kind, because each reads all notes
_CHANGES = 5
_SENTENCES = (
    "東京は日本の首都である。",
    "今日は天気がいいですね。",
    "知識就是力量。學習使人進步。",
    "인공지능은 새로운 시대를 연다.",
)
_CONTEXT = ToolContext(call_id="bench", local=True)

TARGETS = {
    "word": "p50 5, p99 40",
    "frequent word": "p50 5, p99 40",
    "prefix": "p50 5, p99 40",
    "three words": "p50 5, p99 40",
    "phrase": "p50 10",
    "substring": "p50 10",
    "CJK": "p50 10",
}


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: str
    target: str = ""
    beside: str = ""


def make_words(rng: random.Random) -> list[str]:
    starts = (*"bcdfghklmnprstvwz", "st", "tr", "gr", "ch", "sh", "pl")
    vowels = (*"aeiouaeiouaeioäé", "ou", "ei")
    found: dict[str, None] = {}
    while len(found) < _WORDS:
        syllables = rng.choice((1, 2, 2, 3, 3, 4, 5))
        ending = rng.choice(("", "", "n", "s", "r", "ng"))
        found["".join(rng.choice(starts) + rng.choice(vowels) for _ in range(syllables)) + ending] = None
    return list(found)


def write_vault(root: Path, notes: int) -> int:
    """Write the notes and return their size in bytes."""
    rng = random.Random(1)
    words = make_words(rng)
    weights = list(itertools.accumulate(1 / (place + 3) for place in range(len(words))))
    size = 0
    for number in range(notes):
        folder = root / f"Folder {number % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        chosen = rng.choices(words, cum_weights=weights, k=_NOTE_BYTES // 5)
        paragraphs = [" ".join(chosen[place : place + 80]) for place in range(0, len(chosen), 80)]
        if number % 10 == 0:
            paragraphs.insert(1, "".join(rng.choices(_SENTENCES, k=10)))
        text = f"---\ntags: [t{number % 10}, group/g{number % 7}]\n---\n# {' '.join(chosen[:3])}\n\n" + ".\n\n".join(paragraphs)
        content = text.encode()[:_NOTE_BYTES].decode(errors="ignore").encode()
        (folder / f"{chosen[3]} {chosen[4]} {number}.md").write_bytes(content)
        size += len(content)
    return size


def make_queries(root: Path) -> dict[str, list[str]]:
    """Return queries of each kind, taken from notes, so that each finds something."""
    rng = random.Random(2)
    files = sorted(root.rglob("*.md"))
    queries: dict[str, list[str]] = {
        kind: [] for kind in ("word", "frequent word", "prefix", "three words", "phrase", "substring", "CJK")
    }
    while len(queries["word"]) < _QUERIES:
        text = rng.choice(files).read_text(encoding="utf-8")
        words = re.findall(r"[^\W\d_]+", text)
        long = [word for word in words if len(word) >= 7 and word.isalpha()] or words
        word, other = rng.choice(long), rng.choice(long)
        place = rng.randrange(len(words) // 2)
        phrase = re.search(r"[^\W\d_]+ [^\W\d_]+( [^\W\d_]+)?", text[place:])
        queries["word"].append(word)
        queries["frequent word"].append(rng.choice(words))
        queries["prefix"].append(other[:5])
        queries["three words"].append(" ".join(rng.sample(words, 3)))
        queries["phrase"].append(f'"{phrase[0]}"' if phrase else f'"{words[0]}"')
        queries["substring"].append(word[1:6])
        sentence = rng.choice(_SENTENCES)
        start = rng.randrange(len(sentence) - 4)
        queries["CJK"].append(sentence[start : start + rng.choice((1, 2, 3))].strip(" 。.") or "東京")
    return queries


def open_toolset(root: Path, data: Path) -> Toolset:
    settings = VaultSettings(name="bench", kind="vault", path=str(root), timeout_seconds=600)
    return KIND.open(settings, Environment(data_dir=data))


async def search(toolset: Toolset, query: str) -> int:
    found = await toolset.run("vault_search", {"query": query, "limit": 10}, _CONTEXT)
    return len(found) if isinstance(found, list) else 0


async def measure_first_index(toolset: Toolset) -> tuple[float, list[str]]:
    with log.captured() as lines:
        began = time.perf_counter()
        await toolset.open()
        await search(toolset, "nothing")
        seconds = time.perf_counter() - began
    return seconds, [f"{line['done']:,}" for line in lines if line["event"] == "vault_indexing"]


async def measure_searches(toolset: Toolset, queries: list[str]) -> tuple[list[float], float]:
    """Return the milliseconds of each search, sorted, and the mean number of results."""
    times, results = [], 0
    for query in queries:
        began = time.perf_counter()
        results += await search(toolset, query)
        times.append((time.perf_counter() - began) * 1000)
    return sorted(times), results / len(queries)


async def measure_change(toolset: Toolset, root: Path, number: int) -> float:
    """Return the milliseconds from the write of a note until it is found."""
    began = time.perf_counter()
    (root / f"Changed {number % 2}.md").write_text(f"changed number{number}x", encoding="utf-8")
    while not await search(toolset, f"number{number}x"):  # noqa: ASYNC110 -- no event tells that a note is found
        await asyncio.sleep(0.005)
    return (time.perf_counter() - began) * 1000


def scan(root: Path, query: str) -> float:
    """Read and fold every note, and count. Return the milliseconds."""
    parsed = parse_query(query)
    began = time.perf_counter()
    for file in root.rglob("*.md"):
        parsed.count(fold_input(file.stem), fold_input(file.read_text(encoding="utf-8")))
    return (time.perf_counter() - began) * 1000


def run_ripgrep(root: Path, query: str) -> float | None:
    program = shutil.which("rg")
    if program is None:
        return None
    began = time.perf_counter()
    subprocess.run([program, "--count-matches", "-i", "-F", query.strip('"'), root], capture_output=True, check=False)
    return (time.perf_counter() - began) * 1000


def describe_others(root: Path, queries: list[str]) -> str:
    scans = [scan(root, query) for query in queries[:_SCANS]]
    found = [seconds for query in queries[:_SCANS] if (seconds := run_ripgrep(root, query)) is not None]
    ripgrep = f"{statistics.median(found):,.0f}" if found else "not installed"
    return f"scan {statistics.median(scans):,.0f}, ripgrep {ripgrep}" if scans else ""


def _size_of_index(data: Path) -> int:
    return sum(file.stat().st_size for file in data.rglob("*.db"))


async def figures(root: Path, data: Path, notes: int) -> list[Figure]:
    found: list[Figure] = []
    size = write_vault(root, notes)
    queries = make_queries(root)
    found.append(Figure("vault", f"{notes:,} notes, {size / 1e6:,.0f} MB"))
    toolset = open_toolset(root, data)
    seconds, progress = await measure_first_index(toolset)
    found.append(Figure("first index, s", f"{seconds:.1f}", "30", f"progress in the log: {', '.join(progress)}"))
    await toolset.close()
    found.append(Figure("index, MB", f"{_size_of_index(data) / 1e6:,.0f}"))
    began = time.perf_counter()
    toolset = open_toolset(root, data)
    await toolset.open()
    await search(toolset, queries["word"][0])
    found.append(Figure("start with an index and a search, s", f"{time.perf_counter() - began:.2f}", "1"))
    await search(toolset, "nothing here")
    found.append(
        Figure("and a search without results, s", f"{time.perf_counter() - began:.2f}", beside="it waits for the list of words")
    )
    for kind, each in queries.items():
        await measure_searches(toolset, each[:10])
        times, results = await measure_searches(toolset, each)
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        beside = f"{results:.1f} results; {describe_others(root, each)}"
        found.append(Figure(f"{kind}, ms", f"p50 {p50:.1f}, p99 {p99:.1f}", TARGETS[kind], beside))
    changes = sorted([await measure_change(toolset, root, number) for number in range(_CHANGES)])
    found.append(Figure("changed note is found, ms", f"{changes[len(changes) // 2]:.0f}, at most {changes[-1]:.0f}", "1000"))
    await toolset.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024 * 1024)
    found.append(Figure("memory of the process at its peak, MB", f"{memory:.0f}", "200"))
    return found


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=int, default=_NOTES, help=f"default {_NOTES:,}")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    print(f"{'vault':<40}{'figure':<28}{'target':<16}beside it")
    with (
        tempfile.TemporaryDirectory(dir=arguments.directory) as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        for figure in runner.run(figures(Path(folder) / "vault", Path(folder) / "data", arguments.notes)):
            print(f"{figure.name:<40}{figure.value:<28}{figure.target:<16}{figure.beside}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
