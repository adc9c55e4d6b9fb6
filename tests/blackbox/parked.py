"""Stops single threads of a running gateway, wherever they are, and lets them go on.

A thread is stopped as a debugger does it (ptrace), so that the rest of the process goes on undisturbed. It must be
let go by the thread that stopped it. Where the system forbids tracing, the tests are skipped and say so."""

import contextlib
import ctypes
import errno
import os
import pathlib

import pytest
from harness import wait_until

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000  # wait for threads, too

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def trace(request, thread):
    if libc.ptrace(request, thread, None, None) == 0:
        return
    code = ctypes.get_errno()
    if request == SEIZE and code in (errno.EPERM, errno.ENOSYS):
        pytest.skip(f"this system lets no process trace its own child ({os.strerror(code)})")
    raise OSError(code, os.strerror(code))


def thread_of(gateway, name):
    """The number of the gateway's thread with this name, which it may still be about to start."""
    tasks = pathlib.Path(f"/proc/{gateway.process.pid}/task")
    return wait_until(lambda: next((int(t.name) for t in tasks.iterdir() if (t / "comm").read_text().strip() == name), 0),
                      f"the thread {name}")


@contextlib.contextmanager
def parked(gateway, name):
    thread = thread_of(gateway, name)
    trace(SEIZE, thread)
    try:
        trace(INTERRUPT, thread)
        os.waitpid(thread, WALL)
        yield
    finally:
        trace(DETACH, thread)
