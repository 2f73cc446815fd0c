"""A client of the gateway's models, responses and conversations, beside its approvals."""

from __future__ import annotations

from typing import Any, TypeAlias

from toolrelay.cli._gateway import EventStream, segment
from toolrelay.cli.approvals.client import Client

Item: TypeAlias = dict[str, Any]  # of a conversation, as the gateway describes it

MAX_PAGES = 1000
_PAGE = 100


class ChatClient(Client):
    agent = "toolrelay-chat"

    def list_models(self) -> list[str]:
        return [str(model["id"]) for model in self.request("GET", "/v1/models")["data"]]

    def is_demo(self, model: str) -> bool:
        """Return whether it is the gateway's own script, which is served beside configured models."""
        return bool(self.request("GET", f"/v1/models/{segment(model)}")["owned_by"] == "toolrelay:demo")

    def create_conversation(self, title: str) -> str:
        return str(self.request("POST", "/v1/conversations", {"metadata": {"title": title}})["id"])

    def load_items(self, conversation: str) -> list[Item]:
        """Return all items, the oldest first."""
        items: list[Item] = []
        after = ""
        for _ in range(MAX_PAGES):
            page = self.request("GET", f"/v1/conversations/{segment(conversation)}/items?order=asc&limit={_PAGE}{after}")
            items += page["data"]
            if not page["has_more"]:
                break
            after = f"&after={segment(str(page['last_id']))}"
        return items

    def cancel(self, response: str) -> dict[str, Any]:
        return self.request("POST", f"/v1/responses/{segment(response)}/cancel", {})

    def open_response_stream(self, response: str, *, after: int) -> EventStream:
        start = f"&starting_after={after}" if after >= 0 else ""
        return self.open_stream("GET", f"/v1/responses/{segment(response)}?stream=true{start}")
