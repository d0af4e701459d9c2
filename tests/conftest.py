"""For every test: no event loop but the test's own."""

import asyncio


def pytest_configure():
    # pytest-asyncio asks for the current loop before its first test; Python 3.11 would make one that nobody closes,
    # and its ResourceWarning would fail whichever test the garbage collector meets it in.
    asyncio.set_event_loop(None)
