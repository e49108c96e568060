"""Groups of processes with asyncio, with the installed package."""

from __future__ import annotations

import asyncio
import os
import signal
import unittest
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import members
import numpy

import rdmc
import rdmc.aio


async def _exchange() -> list[int]:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group:
        ticking = asyncio.create_task(tick())
        values = numpy.full(100_000, group.rank, dtype="f4")
        await group.all_reduce(values)
        assert (values == sum(range(group.size))).all()
        await group.broadcast(values, root=1)
        lengths = []
        if group.rank == 0:
            async with group.messages(block_bytes=65536) as messages:
                for number in range(5):
                    content = bytes([number]) * (number * 300_000)
                    await messages.send(await group.register(content) if number % 2 == 0 else content)
                    await asyncio.sleep(0.01)
                lengths = [number * 300_000 for number in range(5)]
        else:
            async for message in group.receive():
                whole = bytearray(message.nbytes)
                async for start, block in message.blocks():
                    whole[start : start + len(block)] = block
                data = await message.data()
                assert data == whole == bytes([message.number]) * message.nbytes
                lengths.append(len(data))
        await group.barrier()
        ticking.cancel()
        # The loop has gone on.
        assert ticks > 0
        return lengths


async def _two_at_a_time() -> None:
    async with (
        rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group,
        group.messages(root=0) as first,
        group.messages(root=1) as second,
    ):

        async def all_of(messages: rdmc.aio.Messages) -> int:
            for _ in range(50 if messages.is_root else 0):
                await messages.send(b"x" * 10_000)
            count = 50 if messages.is_root else 0
            while count < 50:
                message = await messages.receive()
                assert message is not None and bytes(await message.data()) == b"x" * 10_000
                count += 1
            return count

        assert tuple(await asyncio.gather(all_of(first), all_of(second))) == (50, 50)


async def _cancelled_receive() -> str:
    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group, group.messages() as messages:
        said = ""
        if not messages.is_root:
            waiting = asyncio.create_task(messages.receive())
            await asyncio.sleep(0.2)
            waiting.cancel()
            try:
                await waiting
            except asyncio.CancelledError:
                said = "cancelled"
            try:
                async with asyncio.timeout(0.1):
                    await messages.receive()
            except rdmc.TimedOut:
                raise AssertionError("a timeout of asyncio's is asyncio's") from None
            except TimeoutError:
                said += ", timed out"
        await group.barrier()
        if messages.is_root:
            await messages.send(b"later")
        else:
            message = await messages.receive()
            assert message is not None and bytes(await message.data()) == b"later"
        return said


async def _cancelled_operation() -> str:
    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group:
        await group.barrier()
        if group.rank == 0:
            waiting = asyncio.create_task(group.broadcast(numpy.zeros(10), root=1))
            await asyncio.sleep(0.3)
            waiting.cancel()
            await waiting
        else:
            await asyncio.sleep(1.0)
            await group.barrier()
            await group.barrier()
        return "nothing"


async def _leave_the_loop(kind: str) -> int:
    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group:
        count = 0
        if group.rank == 0:
            async with group.messages() as messages:
                for _ in range(20):
                    await messages.send(bytes(8_000_000))
                    count += 1
        else:
            async for message in group.receive():
                await message.wait()
                count += 1
                if group.rank == 1 and kind == "raise":
                    raise KeyError("a bug of the program")
                if group.rank == 1:
                    break
        if kind == "barrier":
            await group.barrier()
        return count


async def _split() -> list[int]:
    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group:
        part = await group.split(None if group.rank == 2 else 0, -group.rank)
        if part is None:
            return []
        async with part:
            told = await part.broadcast_bytes(bytes([group.rank]) if part.rank == 0 else None)
            return [part.rank, part.size, *told]


async def _cancelled_split() -> str:
    ended = Path(os.environ["RDMC_STORE"], "cancelled")
    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group:
        await group.barrier()
        try:
            if group.rank == 1:
                while not ended.exists():
                    await asyncio.sleep(0.01)
                await group.barrier()
            splitting = asyncio.create_task(group.split(0))
            await asyncio.sleep(0.1)
            splitting.cancel()
            await splitting
        except asyncio.CancelledError:
            ended.touch()
            return "cancelled"
        except rdmc.Aborted as error:
            return f"aborted by {error.rank}"
        return "formed"


async def _opened(group: rdmc.aio.Group) -> None:
    async with group.messages():
        pass


async def _cancelled_opening() -> list[str]:
    ended = Path(os.environ["RDMC_STORE"], "cancelled")
    said = []
    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group:
        if group.rank == 1:
            # It does not come before the other has given up.
            while not ended.exists():
                await asyncio.sleep(0.01)
            try:
                await group.barrier()
            except rdmc.Aborted as error:
                assert error.rank == 0 and "cancelled" in error.reason, error
                return ["aborted"]
            return ["nothing"]
        opening: asyncio.Task[Any] = asyncio.create_task(_opened(group))
        await asyncio.sleep(0.1)
        opening.cancel()
        try:
            await opening
        except asyncio.CancelledError:
            said.append("cancelled")
        ended.touch()
        try:
            await group.barrier()
        except rdmc.Aborted as error:
            said.append(f"aborted by {error.rank}")
    # Its end waits for nothing.
    return [*said, "closed"]


async def _not_joined() -> list[str]:
    group = rdmc.aio.Group.from_env(timeout=members.PATIENCE)
    said = []
    calls: list[Callable[[], Any]] = [lambda: group.rank, group.counters, group.abort, group.messages, group.receive]
    awaited: list[Callable[[], Awaitable[Any]]] = [group.barrier, lambda: group.split(0)]
    for call in [*calls, *awaited]:
        try:
            called = call()
            if call in awaited:
                await called
        except rdmc.InvalidUse as error:
            said.append(str(error))
    async with group:
        await group.barrier()
    return said


async def _die_at(rank: int) -> None:
    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group, group.messages() as messages:
        if group.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        while messages.is_root:
            await messages.send(bytes(10_000_000))
        async for message in messages:
            await message.wait()


def _run(act: Any, *given: Any) -> Any:
    async def limited() -> Any:
        running: Awaitable[Any] = act(*given)
        return await asyncio.wait_for(running, members.PATIENCE)

    return asyncio.run(limited())


class Asyncio(unittest.TestCase):
    def test_a_loop_that_is_left_ends_nothing(self) -> None:
        for kind in ("barrier", "close"):
            self.assertEqual(members.returned(members.run(_run, 3, _leave_the_loop, kind)), [20, 1, 20])

    def test_a_loop_that_an_exception_leaves_tells_it_to_others(self) -> None:
        members.assert_gave_up(members.run(_run, 3, _leave_the_loop, "raise"), 1, "KeyError")

    def test_a_group_is_split(self) -> None:
        self.assertEqual(members.returned(members.run(_run, 4, _split)), [[2, 3, 3], [1, 3, 3], [], [0, 3, 3]])

    def test_cancelling_a_split_ends_the_group(self) -> None:
        self.assertEqual(members.returned(members.run(_run, 2, _cancelled_split)), ["cancelled", "aborted by 0"])

    def test_operations_and_messages(self) -> None:
        lengths = [number * 300_000 for number in range(5)]
        self.assertEqual(members.returned(members.run(_run, 3, _exchange)), [lengths] * 3)

    def test_tasks_wait_beside_each_other(self) -> None:
        members.returned(members.run(_run, 2, _two_at_a_time))

    def test_cancelling_a_wait_for_a_message_takes_nothing(self) -> None:
        outcomes = members.returned(members.run(_run, 2, _cancelled_receive))
        self.assertEqual(outcomes, ["", "cancelled, timed out"])

    def test_cancelling_an_operation_ends_the_group(self) -> None:
        outcomes: list[Any] = members.run(_run, 2, _cancelled_operation)
        self.assertEqual(outcomes[0][1][0], "CancelledError")
        self.assertEqual((outcomes[1][0], outcomes[1][1][0], outcomes[1][1][2]), ("raised", "Aborted", 0), outcomes)
        self.assertIn("cancelled", outcomes[1][1][1])

    def test_cancelling_the_opening_of_messages_ends_the_group(self) -> None:
        outcomes = members.returned(members.run(_run, 2, _cancelled_opening))
        self.assertEqual(outcomes, [["cancelled", "aborted by 0", "closed"], ["aborted"]])

    def test_a_group_that_is_not_joined_refuses_calls(self) -> None:
        said = members.returned(members.run(_run, 1, _not_joined))[0]
        self.assertEqual(len(said), 7, said)
        for text in said:
            self.assertIn("async with", text)

    def test_a_member_that_is_killed_is_named(self) -> None:
        members.assert_killed(members.run(_run, 3, _die_at, 1), 1)


if __name__ == "__main__":
    unittest.main()
