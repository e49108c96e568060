"""Forwards the library's log records to Python loggers below "rdmc"."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading

from rdmc._rdmc import end_log, log_from, next_record

_LOGGER = logging.getLogger("rdmc")
# How long the end of the program waits for log handlers, in seconds.
_EXIT_SECONDS = 10.0


def follow_log() -> None:
    """Forwards records from the level that the logger "rdmc" has at present."""
    log_from(min(max(_LOGGER.getEffectiveLevel(), 1), 255))
    _start(os.getpid())


@functools.cache
def _start(process: int) -> None:
    """Starts the thread, once per process: a fork does not have its parent's thread."""
    thread = threading.Thread(target=_forward, name="rdmc-log", daemon=True)
    thread.start()
    atexit.register(_end, thread, process)


def _forward() -> None:
    while (record := next_record()) is not None:
        level, logger, text = record
        try:
            logging.getLogger(logger).log(level, "%s", text)
        except BaseException:
            # Raised by a handler or filter of the application. Reported as logging does; later records are still forwarded.
            logging.Handler().handleError(logging.makeLogRecord({"name": logger, "levelno": level, "msg": text}))


def _end(thread: threading.Thread, process: int) -> None:
    """Ends the thread before the interpreter ends; later it could not run Python code."""
    if process == os.getpid():
        end_log()
        thread.join(_EXIT_SECONDS)
