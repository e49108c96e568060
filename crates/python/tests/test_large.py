"""Many groups, and large arrays: RDMC_TEST_LARGE=1 for 10,000 groups and 4 GiB."""

from __future__ import annotations

import os
import threading
import unittest

import members
import numpy

import rdmc

_IS_LARGE = os.environ.get("RDMC_TEST_LARGE") == "1"
_GROUPS = 10_000 if _IS_LARGE else 300
# Before this many, allocators and caches still grow.
_WARM = 100


def _resources() -> tuple[int, int, int]:
    """Bytes in memory, descriptors, threads of this process."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]) << 10, len(os.listdir("/proc/self/fd")), int(fields["Threads"])


def _many_groups() -> int:
    values = numpy.zeros(100_000)
    before = (0, 0, 0)
    for number in range(_GROUPS):
        if number == _WARM:
            before = _resources()
        with members.group(number=number + 1) as group:
            group.broadcast(values)
            if number % 10 == 0:
                with group.messages() as messages:
                    if messages.is_root:
                        messages.send(values)
                    else:
                        assert sum(message.data().nbytes for message in messages) == values.nbytes
    after = _resources()
    assert after[1:] == before[1:], (before, after)
    return after[0] - before[0]


def _large(length: int) -> None:
    with members.group() as group:
        values = numpy.zeros(length, dtype="u1")
        if group.rank == 0:
            values[::4099] = 7
        group.broadcast(values)
        assert values[::4099].min() == 7 and int(values[::4099].size) * 7 == int(values.sum(dtype="u8"))
        with group.messages(posted=True) as messages:
            if messages.is_root:
                values[-1] = 9
                messages.send(values)
            else:
                values[-1] = 0
                messages.post(values)
                for message in messages:
                    assert message.nbytes == length
                    message.wait()
                assert values[-1] == 9


def _threads() -> int:
    with members.group() as group, group.messages() as messages:
        if messages.is_root:

            def send() -> None:
                for _ in range(100):
                    messages.send(b"x" * 10_000)

            threads = [threading.Thread(target=send) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return 400
        received = []

        def receive() -> None:
            while (message := messages.receive()) is not None:
                assert message.data() == b"x" * 10_000
                received.append(message.number)

        threads = [threading.Thread(target=receive) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(received) == list(range(400))
        return len(received)


class Large(unittest.TestCase):
    def test_groups_leave_nothing(self) -> None:
        for grown in members.returned(members.run(_many_groups, 2)):
            # An array that was kept once for each group would be 800 kB each.
            self.assertLess(grown, 16 << 20)

    def test_arrays_beyond_32_bits(self) -> None:
        members.returned(members.run(_large, 2, (4 << 30) + 5 if _IS_LARGE else (64 << 20) + 5))

    def test_threads_send_and_receive(self) -> None:
        self.assertEqual(members.returned(members.run(_threads, 2)), [400, 400])


if __name__ == "__main__":
    unittest.main()
