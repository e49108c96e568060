"""Forwards log records of the library to Python's logging: to loggers below "rdmc"."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading

from rdmc._rdmc import end_log, log_from, next_record

_LOGGER = logging.getLogger("rdmc")
# How long the end of the program waits for handlers of records, in seconds.
_EXIT_SECONDS = 10.0


def follow_log() -> None:
    """Takes from the library what the logger "rdmc" lets pass at present."""
    log_from(min(max(_LOGGER.getEffectiveLevel(), 1), 255))
    _start(os.getpid())


@functools.cache
def _start(process: int) -> None:
    """Once for each process: a fork has no thread of its parent."""
    thread = threading.Thread(target=_forward, name="rdmc-log", daemon=True)
    thread.start()
    atexit.register(_end, thread, process)


def _forward() -> None:
    while (record := next_record()) is not None:
        level, logger, text = record
        try:
            logging.getLogger(logger).log(level, "%s", text)
        except BaseException:
            # Of a handler or a filter of the application: later records are not lost. Python's logging tells of it as of its own handlers.
            logging.Handler().handleError(logging.makeLogRecord({"name": logger, "levelno": level, "msg": text}))


def _end(thread: threading.Thread, process: int) -> None:
    """Before the interpreter ends: a thread that came back later could not."""
    if process == os.getpid():
        end_log()
        thread.join(_EXIT_SECONDS)
