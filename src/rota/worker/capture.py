"""Standard streams and Python's logging of task code: on as ever, and into the log of the attempt."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from rota.worker.context import CURRENT


def capture() -> None:
    """After the app is loaded: handlers it has made write to the real streams, so nothing is taken down twice."""
    root = logging.getLogger()
    # Who has set logging up has said what is to be seen; otherwise as ever, and of tasks more.
    real = None if root.handlers else sys.stderr
    if real is not None:
        root.setLevel(logging.INFO)
    root.addHandler(_Records(real))
    sys.stdout = cast(TextIO, _Tee("stdout", sys.stdout))
    sys.stderr = cast(TextIO, _Tee("stderr", sys.stderr))


class _Tee:
    """A stream that writes where it always did, and tells the attempt whose code writes."""

    def __init__(self, name: str, real: TextIO) -> None:
        self._name = name
        self._real = real

    def write(self, text: str) -> int:
        written = self._real.write(text)
        context = CURRENT.get(None)
        if context is not None:
            context.take_down(self._name, text)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Records(logging.Handler):
    def __init__(self, real: TextIO | None) -> None:
        super().__init__(logging.INFO)
        self._real = real
        self._for_log = logging.Formatter("%(levelname)s %(name)s: %(message)s")
        self._for_stream = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        context = CURRENT.get(None)
        try:
            if context is not None:
                context.take_down(None, self._for_log.format(record))
            if self._real is not None and (context is not None or record.levelno >= logging.WARNING):
                self._real.write(self._for_stream.format(record) + "\n")
        except Exception:
            self.handleError(record)
