"""A contract for import-linter: a module that begins with an underscore is imported only within its package."""

from __future__ import annotations

from typing import Any

from importlinter import Contract, ContractCheck, output


class PrivateModulesContract(Contract):
    """Fail on every import of another package's private module."""

    def check(self, graph: Any, verbose: bool) -> ContractCheck:  # noqa: FBT001 -- the signature of import-linter
        broken = sorted(
            f"{importer} imports {module}"
            for module in graph.modules
            if (package := _private_to(module)) is not None
            for importer in graph.find_modules_that_directly_import(module)
            if importer != package and not importer.startswith(f"{package}.")
        )
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)


def _private_to(module: str) -> str | None:
    """Return the package that a module is private to, if it is private."""
    segments = module.split(".")
    for number, segment in enumerate(segments):
        if segment.startswith("_") and not segment.startswith("__"):
            return ".".join(segments[:number])
    return None
