"""When the addresses of attached interfaces are announced, and when no longer."""

import dataclasses
from collections.abc import Iterator

import pytest

from drakit_nic.attach import announcer
from fakes import log_lines, waits

SUBJECT = announcer.Subject(
    key="grant",
    nsid=1,
    ifindex=7,
    name="fast0",
    mac="02:aa:00:00:00:01",
    hosts=frozenset({"10.9.0.2"}),
    versions=frozenset({4, 6}),
    nic="nic0",
)
WELL = announcer.Announceable(mac=SUBJECT.mac, has_link=True, hosts=SUBJECT.hosts)


class FakeKernel:
    """A kernel that counts what is sent."""

    def __init__(self) -> None:
        self.present: announcer.Announceable | None = WELL
        self.refusal: OSError | None = None
        self.now = 100.0
        self.senders: list[FakeSender] = []
        self.frames: list[str] = []

    def sender(self, descriptor: int | None = None) -> "FakeSender":
        if self.refusal is not None:
            raise self.refusal
        self.senders.append(FakeSender(self, "pod" if descriptor is not None else "host"))
        return self.senders[-1]

    def announceable(self, subject: announcer.Subject) -> announcer.Announceable | None:
        del subject
        return self.present

    def sent(self) -> list[str]:
        """Where and by which interface a frame was sent since the last call."""
        result, self.frames = self.frames, []
        return result

    def is_released(self) -> bool:
        """Whether no socket keeps a pod's namespace."""
        return all(sender.is_closed for sender in self.senders if sender.place == "pod")


class FakeSender:
    """A socket in a pod or on the host."""

    def __init__(self, kernel: FakeKernel, place: str) -> None:
        self.kernel, self.place, self.is_closed = kernel, place, False

    def sendto(self, frame: bytes, address: tuple[str, int], /) -> None:
        assert not self.is_closed
        assert frame
        self.kernel.frames.append(f"{self.place} {address[0]}")

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()


@pytest.fixture
def announcing(kernel: FakeKernel) -> Iterator[announcer.Announcer]:
    made = announcer.Announcer(kernel, monotonic=lambda: kernel.now)
    yield made
    made.close()
    assert all(sender.is_closed for sender in kernel.senders)


def at(kernel: FakeKernel, announcing: announcer.Announcer, seconds: float) -> list[str]:
    kernel.now = 100.0 + seconds
    announcing.send_due()
    return kernel.sent()


def test_nothing_is_announced_where_the_class_turns_both_versions_off(kernel: FakeKernel, announcing: announcer.Announcer) -> None:
    announcing.announce(dataclasses.replace(SUBJECT, versions=frozenset()), 3)
    assert at(kernel, announcing, 60) == []
    assert kernel.senders == []


def test_a_share_is_announced_in_its_pod_and_then_twice_by_its_nic(kernel: FakeKernel, announcing: announcer.Announcer) -> None:
    announcing.announce(SUBJECT, 3)
    assert kernel.sent() == ["pod fast0"]
    assert [at(kernel, announcing, seconds) for seconds in (0.9, 1.0, 2.9, 3.0, 9.0)] == [[], ["host nic0"], [], ["host nic0"], []]
    assert waits.eventually(kernel.is_released)


def test_a_whole_interface_is_announced_by_one_socket_in_its_pod(kernel: FakeKernel, announcing: announcer.Announcer) -> None:
    announcing.announce(dataclasses.replace(SUBJECT, nic=""), 3)
    assert [at(kernel, announcing, seconds) for seconds in (0.0, 1.0, 3.0)] == [["pod fast0"]] * 3
    assert waits.eventually(kernel.is_released)


def test_a_cancelled_subject_is_silent_and_its_socket_is_closed(kernel: FakeKernel, announcing: announcer.Announcer) -> None:
    announcing.announce(dataclasses.replace(SUBJECT, nic=""), 3)
    announcing.announce(dataclasses.replace(SUBJECT, nic="", key="other"), 3)
    kernel.sent()
    announcing.cancel("grant")
    assert at(kernel, announcing, 1.0) == ["pod fast0"], "the other one goes on"
    announcing.close()
    assert waits.eventually(kernel.is_released)


@pytest.mark.parametrize("present", [None, dataclasses.replace(WELL, mac="02:ff:00:00:00:01")], ids=["gone", "another MAC"])
def test_what_is_no_longer_the_interface_is_not_announced(
    kernel: FakeKernel, announcing: announcer.Announcer, present: announcer.Announceable | None
) -> None:
    announcing.announce(SUBJECT, 3)
    kernel.sent()
    kernel.present = present
    assert at(kernel, announcing, 1.0) == []
    kernel.present = WELL
    assert at(kernel, announcing, 3.0) == []


def test_the_link_is_waited_for_but_not_for_ever(kernel: FakeKernel, announcing: announcer.Announcer) -> None:
    kernel.present = dataclasses.replace(WELL, has_link=False)
    announcing.announce(dataclasses.replace(SUBJECT, nic=""), 3)
    assert at(kernel, announcing, 5.0) == []
    kernel.present = WELL
    assert at(kernel, announcing, 5.5) == ["pod fast0"]
    kernel.present = dataclasses.replace(WELL, has_link=False)
    assert at(kernel, announcing, announcer.LINK_SECONDS + 1) == []
    assert waits.eventually(kernel.is_released)


def test_a_driver_that_may_not_send_frames_warns_and_attaches(
    kernel: FakeKernel, announcing: announcer.Announcer, logged: log_lines.LogLines
) -> None:
    kernel.refusal = PermissionError(1, "Operation not permitted")
    announcing.announce(SUBJECT, 3)
    (line,) = logged.lines
    assert (line["event"], line["interface"], line["error"]) == ("address announcement failed", "fast0", "Operation not permitted")
    assert announcing.send_due() is None


def test_an_unexpected_error_does_not_end_the_announcing(kernel: FakeKernel, announcing: announcer.Announcer) -> None:
    class Broken(FakeKernel):
        def announceable(self, subject: announcer.Subject) -> announcer.Announceable | None:
            raise ValueError(subject.name)

    broken = announcer.Announcer(Broken(), monotonic=lambda: 100.0)
    broken.announce(SUBJECT, 3)
    assert broken.send_due() is None
    broken.close()
    del kernel, announcing
