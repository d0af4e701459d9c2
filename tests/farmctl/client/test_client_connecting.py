"""A door whose first packet is lost: each kind of caller gives up on connecting long before its hold is over."""

import socket

import pytest

from farmctl.client import DoorUnreachable, connect, lease, render, transport


@pytest.fixture
def silent_door(monkeypatch):
    """A listener whose queue is full: the kernel drops what else comes, as the address of a dead pod does."""
    monkeypatch.setattr(transport, "CONNECT_S", 0.3)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)
        yield f"http://127.0.0.1:{address[1]}"
        for each in waiting:
            each.close()


async def test_a_browser(silent_door):
    with pytest.raises(DoorUnreachable, match=r"no connection within 0\.3 s"):
        async with connect(silent_door, hold_s=600):
            pass


async def test_a_render(silent_door):
    with pytest.raises(DoorUnreachable):
        await render(silent_door, "http://page", hold_s=600)


async def test_a_lease(silent_door):
    with pytest.raises(DoorUnreachable):
        async with lease(silent_door, hold_s=600):
            pass
