"""The tools of a vault, as models and people see them."""

from __future__ import annotations

from toolrelay.toolsets.base import ToolDefinition

SEARCH = "vault_search"
READ = "file_read"
DEFAULT_LIMIT = 10
MAX_LIMIT = 50


def define_tools(*, asks_to_share: bool) -> list[ToolDefinition]:
    search = ToolDefinition(
        name=SEARCH,
        title="Search vault",
        description=(
            "Search the Obsidian vault for files by name or content. Returns file paths, names, and content previews. "
            "Use this to find relevant notes before reading them."
        ),
        parameters={
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": (
                        "The search query to find files. "
                        "Can be keywords, topics, or phrases to search for in file names and content."
                    ),
                },
                "limit": {
                    "type": "number",
                    "default": DEFAULT_LIMIT,
                    "description": "Maximum number of search results to return. Default is 10, maximum is 50.",
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        idempotent=True,
        asks_to_share=asks_to_share,
    )
    read = ToolDefinition(
        name=READ,
        title="Read files",
        description=(
            "Read the full contents of specific files from the vault. User will be asked to approve which files to share. "
            "Use this after searching to get complete file contents."
        ),
        parameters={
            "type": "object",
            "properties": {
                "filePaths": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Array of file paths to read. Use the paths returned from vault_search.",
                }
            },
            "required": ["filePaths"],
            "additionalProperties": False,
        },
        idempotent=True,
        files_argument="filePaths",
        asks_to_share=asks_to_share,
    )
    return [search, read]
