"""The log of one attempt: numbers its lines, cuts the long ones, and ends when there are too many."""

from __future__ import annotations

from rota.model.log import MOST_LINE, MOST_LOG, cut

FULL = f"… more was logged than the {MOST_LOG // 1024} KiB that are kept of an attempt; the rest was dropped"
Numbered = list[tuple[int, str]]


class Transcript:
    """Every method returns the lines that have come of it."""

    def __init__(self) -> None:
        self._seq = 0
        self._left = MOST_LOG
        self._begun: dict[str, str] = {}

    def entry(self, text: str) -> Numbered:
        """One line, whatever line breaks are in it."""
        if self._left < 0:
            return []
        line = cut(text)
        self._left -= len(line.encode())
        self._seq += 1
        return [(self._seq, line if self._left >= 0 else FULL)]

    def piece(self, stream: str, text: str) -> Numbered:
        """Of a stream, where a line ends with its line break."""
        if self._left < 0:
            return []
        *whole, begun = (self._begun.get(stream, "") + text).split("\n")
        # Of a line without an end only so much is kept as is ever shown.
        self._begun[stream] = begun[: MOST_LINE + 1]
        return [numbered for line in whole for numbered in self.entry(line)]

    def rest(self) -> Numbered:
        """What was begun on the streams and has no line break yet."""
        begun, self._begun = self._begun, {}
        return [numbered for line in begun.values() if line for numbered in self.entry(line)]
