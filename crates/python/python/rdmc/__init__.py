"""Copies large objects from one machine to many, in about the time that one copy takes.

:func:`push` copies files to hosts, as the command ``rdmc push`` does, and :func:`fetch` gets them from a server. :class:`Group` joins
processes, on one machine or many, that broadcast and reduce arrays in place and send messages. :mod:`rdmc.aio` is the asyncio version; :mod:`rdmc.torch` sends state dicts.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from rdmc._fetch import FetchedFile, FetchedFiles, FetchOptions, FetchReport, fetch
from rdmc._push import PushOptions, PushReport, push
from rdmc._rdmc import __version__, random_secret
from rdmc.errors import (
    Aborted,
    Corrupt,
    Differs,
    FetchError,
    InvalidUse,
    MemberLost,
    PushError,
    RdmcError,
    Refused,
    Stalled,
    TimedOut,
)
from rdmc.group import Counters, Group, Work
from rdmc.host import HostGroup
from rdmc.messages import Message, Messages, Region

__all__ = [
    "Aborted",
    "Corrupt",
    "Counters",
    "Differs",
    "FetchError",
    "FetchOptions",
    "FetchReport",
    "FetchedFile",
    "FetchedFiles",
    "Group",
    "HostGroup",
    "InvalidUse",
    "MemberLost",
    "Message",
    "Messages",
    "PushError",
    "PushOptions",
    "PushReport",
    "RdmcError",
    "Refused",
    "Region",
    "Stalled",
    "TimedOut",
    "Work",
    "__version__",
    "fetch",
    "push",
    "random_secret",
]

if TYPE_CHECKING:
    from rdmc import aio as aio
    from rdmc import torch as torch
else:

    def __getattr__(name: str) -> ModuleType:
        # Imported on first use: these modules import asyncio and torch.
        if name in ("aio", "torch"):
            return importlib.import_module(f"rdmc.{name}")
        raise AttributeError(f"module 'rdmc' has no attribute {name!r}")
