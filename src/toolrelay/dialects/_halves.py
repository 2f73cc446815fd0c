"""Characters that came as two halves, in chunks that may have been cut between them."""

from __future__ import annotations


def made_whole(text: str) -> tuple[str, str]:
    """The text with surrogates made whole, or replaced where they stand alone; and a first half that waits for the second."""
    half = ""
    try:
        text.encode()
    except UnicodeEncodeError:
        if "\ud800" <= text[-1] < "\udc00":
            text, half = text[:-1], text[-1]
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text, half
