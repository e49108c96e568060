"""Messages from one process of a group to the others, with the installed package."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import unittest
from typing import Any

import members
import numpy

import rdmc


def _contents(number: int, length: int) -> bytes:
    return random.Random(number).randbytes(length)


_LENGTHS = [0, 1, 4096, 3_000_001, 100, 2_500_000]


def _all_lengths(root: int) -> int:
    with members.group() as group, group.messages(root, block_bytes=65536) as messages:
        if group.rank == root:
            for number, length in enumerate(_LENGTHS):
                assert messages.send(_contents(number, length)) == number
            return len(_LENGTHS)
        count = 0
        for message in messages:
            assert (message.number, message.nbytes) == (count, _LENGTHS[count])
            expected = _contents(count, message.nbytes)
            if count % 2 == 0:
                data = message.data()
                assert data.readonly and data == expected
            else:
                whole = bytearray(message.nbytes)
                for start, block in message.blocks():
                    whole[start : start + len(block)] = block
                assert whole == expected
            count += 1
        return count


def _choices() -> list[tuple[str, int]]:
    taken = []
    with members.group() as group:
        # Only what the root says of lengths counts.
        choices: list[dict[str, Any]] = [
            {},
            {"message_bytes": 10_000 if group.rank == 1 else 10**9},
            {"algorithm": "chain"},
            {"algorithm": "auto", "block_bytes": 12_345},
        ]
        for settings in choices:
            with group.messages(1, **settings) as messages:
                taken.append((messages.algorithm, messages.block_bytes))
    return taken


def _wrong_arguments() -> list[str]:
    said: list[str] = []

    def refused(call: Any, *arguments: Any, **named: Any) -> None:
        try:
            call(*arguments, **named)
        except (rdmc.InvalidUse, TypeError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")

    with members.group() as group:
        refused(group.messages, block_bytes=-1)
        refused(group.messages, message_bytes=1 << 64)
        refused(group.messages, block_bytes="1")
        with group.messages() as messages:
            # What is wrong changes nothing for the others.
            if messages.is_root:
                messages.send(b"1")
                refused(messages.wait_delivered, 1, timeout="soon")
                messages.wait_delivered(1)
            else:
                message = messages.receive()
                assert message is not None and bytes(message.data()) == b"1"
    return said


def _join_late(is_split: bool) -> str:
    """Rank 1 joins no messages, or not the part of the group that it has told to join."""
    group = rdmc.Group.from_env(timeout=10 * members.PATIENCE)
    said = ""
    if group.rank == 0:
        try:
            if is_split:
                group.split(0, timeout=1)
            else:
                group.messages(timeout=1)
        except rdmc.TimedOut as error:
            said = str(error)
    elif is_split:
        group._tell_color(0, 0, "127.0.0.1:1", members.PATIENCE)
    # It goes on.
    group.barrier()
    group.close()
    return said


def _arrays_given_before() -> None:
    with members.group() as group, group.messages(posted=True) as messages:
        if messages.is_root:
            for number in range(3):
                messages.send(numpy.full((1000, 100), number, dtype="f8"))
            messages.wait_complete(3)
            return
        arrays = [numpy.empty((1000, 100)) for _ in range(3)]
        for array in arrays:
            messages.post(array)
        for number, message in enumerate(messages):
            message.wait()
            assert (arrays[number] == number).all()
        messages.wait_complete(3)
        for array in arrays:
            array.fill(-1)


def _registered() -> None:
    with members.group() as group:
        values, text = numpy.zeros(1000), bytearray(b"text")
        whole, fixed = group.register(values), group.register(text)
        assert (whole.nbytes, whole.readonly, whole.part(8, 24).part(8, 16).nbytes) == (8000, False, 8)
        halves = [whole.part(0, 4000), whole.part(4000, 8000)]
        with group.messages(posted=True) as messages:
            if messages.is_root:
                values[:] = numpy.arange(1000)
                for part in (*halves, fixed.part(1, 3)):
                    messages.send(part)
            else:
                for part in (halves[1], halves[0], fixed):
                    messages.post(part)
                for message in messages:
                    message.wait()
        if group.rank != 0:
            assert (values == [*range(500, 1000), *range(500)]).all() and text == b"exxt"
        group.barrier()
        # Its memory is held as long as a part of it is.
        part = fixed.part(0, 1)
        del fixed, messages
        try:
            text.append(0)
        except BufferError:
            pass
        else:
            raise AssertionError("it was resized")
        del part
        if group.rank == 0:
            text.append(0)


def _posted_again() -> str:
    """A region whose message is still looked at, and then no longer."""
    with members.group() as group, group.messages(posted=True) as messages:
        if messages.is_root:
            for number in range(2):
                messages.send(bytes([number]) * 100_000)
            return ""
        region, said = group.register(bytearray(100_000)), ""
        messages.post(region)
        message = messages.receive()
        assert message is not None
        view = message.data()
        try:
            messages.post(region)
        except rdmc.InvalidUse as error:
            said = str(error)
        assert view[0] == 0
        messages.wait_complete(1)
        del view, message
        messages.post(region)
        message = messages.receive()
        assert message is not None and bytes(message.data()) == bytes([1]) * 100_000
        return said


def _registered_and_refused() -> list[str]:
    with members.group() as group, group.messages(root=1) as messages:
        region: Any = group.register(bytearray(10))
        fixed = group.register(b"read-only")
        assert fixed.readonly
        wrong: list[Any] = [
            lambda: group.register([1]),
            lambda: group.register(numpy.zeros((4, 4))[:, 1]),
            lambda: region.part(0, 11),
            lambda: region.part(6, 5),
            lambda: region.part(-1, 5),
            lambda: region.part(0.5, 5),
            lambda: group.broadcast(region),
        ]
        if not messages.is_root:
            wrong.append(lambda: messages.post(fixed))
        said = []
        for call in wrong:
            try:
                call()
            except rdmc.InvalidUse as error:
                said.append(str(error))
        if messages.is_root:
            messages.send(fixed)
        else:
            received = messages.receive()
            assert received is not None and bytes(received.data()) == b"read-only"
    try:
        group.register(bytearray(1))
    except rdmc.InvalidUse as error:
        said.append(str(error))
    return said


def _learn_what_all_have() -> int:
    with members.group() as group, group.messages(verify=True) as messages:
        if messages.is_root:
            for number in range(5):
                messages.send(_contents(number, 100_000 * number))
                messages.wait_delivered(number + 1)
                assert messages.delivered == number + 1
            return messages.delivered
        for message in messages:
            assert message.data() == _contents(message.number, 100_000 * message.number)
        try:
            messages.wait_delivered(1)
        except rdmc.InvalidUse:
            return messages.delivered
        raise AssertionError("it was not refused")


def _views_outlive_the_group() -> int:
    with members.group() as group:
        views: list[memoryview] = []
        if group.rank == 0:
            with group.messages() as messages:
                messages.send(b"x" * 1_000_000)
        else:
            views = [message.data() for message in group.receive()]
    return sum(len(view) for view in views if view == b"x" * 1_000_000)


def _refused() -> None:
    with members.group() as group:
        with group.messages(root=1) as messages:
            values = numpy.zeros((4, 4))
            wrong: list[Any] = [lambda: messages.post(b"read-only"), lambda: messages.post(values[:, 1])]
            if messages.is_root:
                wrong = [lambda: messages.send(values[:, 1]), messages.receive]
            else:
                wrong.append(lambda: messages.send(b"not the root"))
            for call in wrong:
                try:
                    call()
                except rdmc.InvalidUse:
                    pass
                else:
                    raise AssertionError("it was not refused")
        for call in (messages.receive, lambda: messages.send(b""), lambda: group.messages(root=7)):
            try:
                call()
            except rdmc.InvalidUse:
                pass
            else:
                raise AssertionError("it was not refused")


def _too_short() -> str:
    with members.group() as group, group.messages(posted=True) as messages:
        if messages.is_root:
            messages.send(b"twelve bytes")
            return ""
        messages.post(bytearray(3))
        try:
            messages.receive()
        except rdmc.RdmcError as error:
            message = messages.receive()
            assert message is not None and bytes(message.data()) == b"twelve bytes"
            return str(error)
        return "it was taken"


def _die_while_receiving(rank: int) -> None:
    with members.group() as group, group.messages() as messages:
        if messages.is_root:
            while True:
                messages.send(bytes(4_000_000))
        for message in messages:
            if group.rank == rank and message.number == 3:
                os.kill(os.getpid(), signal.SIGKILL)


def _die_before_messages(rank: int) -> None:
    with members.group() as group:
        group.barrier()
        if group.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        with group.messages():
            raise AssertionError("a member that is dead has joined")


def _raise_while_receiving(rank: int) -> None:
    with members.group() as group, group.messages() as messages:
        if messages.is_root:
            while True:
                messages.send(bytes(4_000_000))
        for message in messages:
            if group.rank == rank and message.number == 3:
                raise KeyError("a bug of the program")


def _interrupt_at(rank: int) -> str:
    with members.group() as group:
        messages = group.messages()
        if group.rank != rank:
            try:
                # Nothing is sent.
                messages.wait_complete(1)
            except rdmc.MemberLost as error:
                assert error.rank == rank, error
                return "learned of it"
            return "nothing"
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
        try:
            # The root sends nothing.
            messages.receive()
        except KeyboardInterrupt:
            return "interrupted"
        return "not interrupted"


def _interrupt_while_joining() -> str:
    if os.environ["RANK"] == "1":
        # Is there, but does not join for a long time.
        time.sleep(3)
        return "late"
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    begin = time.monotonic()
    try:
        rdmc.Group(0, ["127.0.0.1:0", "127.0.0.1:9"], rdmc.random_secret(), timeout=60)
    except KeyboardInterrupt:
        return "interrupted" if time.monotonic() - begin < 30 else "too late"
    return "joined"


def _time_out() -> str:
    with members.group() as group, group.messages() as messages:
        outcome = ""
        if not messages.is_root:
            try:
                messages.receive(timeout=0.2)
            except rdmc.TimedOut as error:
                outcome = str(error)
            else:
                raise AssertionError("it was received")
        group.barrier()
        if messages.is_root:
            messages.send(b"late")
        else:
            message = messages.receive()
            assert message is not None and bytes(message.data()) == b"late"
        return outcome


def _leave_the_loop(kind: str) -> int:
    """Rank 1 leaves its loop after the first of 20 messages, which are more than it has memory for at a time."""
    with members.group() as group:
        count = 0
        if group.rank == 0:
            with group.messages() as messages:
                for _ in range(20):
                    messages.send(bytes(8_000_000))
                    count += 1
        else:
            for message in group.receive():
                message.wait()
                count += 1
                if group.rank == 1 and kind == "raise":
                    raise KeyError("a bug of the program")
                if group.rank == 1:
                    break
        if kind == "barrier":
            group.barrier()
        return count


class MessagesOfGroups(unittest.TestCase):
    def test_a_loop_that_is_left_ends_nothing(self) -> None:
        for kind in ("barrier", "close"):
            self.assertEqual(members.returned(members.run(_leave_the_loop, 3, kind)), [20, 1, 20])

    def test_a_loop_that_an_exception_leaves_tells_it_to_others(self) -> None:
        members.assert_gave_up(members.run(_leave_the_loop, 3, "raise"), 1, "KeyError")

    def test_messages_of_all_lengths_from_any_root(self) -> None:
        for root in (0, 2):
            count = len(_LENGTHS)
            self.assertEqual(members.returned(members.run(_all_lengths, 3, root)), [count] * 3)

    def test_all_members_take_what_the_root_chooses(self) -> None:
        taken = members.returned(members.run(_choices, 3))
        self.assertEqual(taken, [taken[0]] * 3)
        usual, short, chain, given = taken[0]
        self.assertLess(short[1], usual[1])
        self.assertEqual((chain[0], given[1]), ("chain", 12_345))

    def test_messages_into_arrays(self) -> None:
        members.returned(members.run(_arrays_given_before, 4))

    def test_messages_of_registered_memory(self) -> None:
        members.returned(members.run(_registered, 3))

    def test_a_region_that_is_in_use_is_not_posted_again(self) -> None:
        said = members.returned(members.run(_posted_again, 2))[1]
        self.assertRegex(said, "in use: use wait_complete")

    def test_what_cannot_be_registered_is_named_and_ends_nothing(self) -> None:
        receiver, root = members.returned(members.run(_registered_and_refused, 2))
        self.assertEqual([len(receiver), len(root)], [9, 8])
        self.assertIn("end is 11; use 0 to 10", receiver)
        self.assertIn("the group is closed", root)

    def test_the_root_learns_what_all_have(self) -> None:
        self.assertEqual(members.returned(members.run(_learn_what_all_have, 3)), [5, 5, 5])
        error = rdmc.errors.make("differs", 2, "a copy")
        self.assertTrue(isinstance(error, rdmc.Differs) and error.rank == 2)

    def test_what_was_received_outlives_the_group(self) -> None:
        self.assertEqual(members.returned(members.run(_views_outlive_the_group, 2)), [0, 1_000_000])

    def test_wrong_use_is_refused(self) -> None:
        members.returned(members.run(_refused, 2))

    def test_joining_ends_with_the_timeout_of_the_call(self) -> None:
        for is_split in (False, True):
            first, _ = members.returned(members.run(_join_late, 2, is_split))
            self.assertRegex(first, "rank.* 1 .*to join the group")

    def test_wrong_arguments_are_named_and_end_nothing(self) -> None:
        said = members.returned(members.run(_wrong_arguments, 2))
        self.assertEqual([len(each) for each in said], [4, 3])
        self.assertEqual(said[1][0], "InvalidUse: block_bytes is -1; use 0 to 18446744073709551615")

    def test_memory_that_is_too_short_loses_no_message(self) -> None:
        said = members.returned(members.run(_too_short, 2))[1]
        self.assertIn("12", said)

    def test_a_member_that_is_killed_is_named(self) -> None:
        members.assert_killed(members.run(_die_while_receiving, 4, 2), 2)

    def test_a_member_that_is_dead_is_not_waited_for(self) -> None:
        members.assert_killed(members.run(_die_before_messages, 3, 1), 1)

    def test_a_member_that_raises_is_named(self) -> None:
        members.assert_gave_up(members.run(_raise_while_receiving, 3, 1), 1, "KeyError")

    def test_ctrl_c_ends_a_wait(self) -> None:
        outcomes = members.returned(members.run(_interrupt_at, 2, 1))
        self.assertEqual(outcomes, ["learned of it", "interrupted"])

    def test_ctrl_c_ends_joining(self) -> None:
        self.assertEqual(members.returned(members.run(_interrupt_while_joining, 2)), ["interrupted", "late"])

    def test_a_wait_that_runs_out_takes_nothing(self) -> None:
        said = members.returned(members.run(_time_out, 2))[1]
        self.assertIn("0.2 s", said)


if __name__ == "__main__":
    unittest.main()
