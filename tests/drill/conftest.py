"""Subjects of the tests that are stopped, and checked, at the end."""

import contextlib

import pytest
from subjects import Gateway, WrongServer


@pytest.fixture
def site(tmp_path):
    """Start servers: site(kind, arguments...)."""
    with contextlib.ExitStack() as started:
        def begin(kind, *arguments):
            one = WrongServer(kind, tmp_path, *arguments)
            started.callback(one.stop)
            return one

        yield begin


@pytest.fixture
def gateway(site, tmp_path):
    """Start the gateway in front of a server: gateway(kind, arguments...)."""
    with contextlib.ExitStack() as started:
        def begin(kind, *arguments):
            one = Gateway(site(kind, *arguments), tmp_path).begin()
            started.callback(one.stop)
            return one

        yield begin
