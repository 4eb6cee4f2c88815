"""Texts that fit into a result, which is kept as JSON."""

from __future__ import annotations

from typing import Any

import msgspec


def printed_size(value: Any) -> int:
    return len(msgspec.json.encode(value))


def shortened(text: str, most: int, *, keep_end: bool = False) -> str:
    """As much of it as takes no more than `most` bytes of JSON, where one character may take six; `…` marks the cut."""
    kept = text
    while (size := printed_size(kept)) > most and text:
        keep = min(len(text) - 1, len(text) * most // size)
        text = text[len(text) - keep :] if keep_end else text[:keep]
        kept = f"…{text}" if keep_end else f"{text}…"
    return kept
