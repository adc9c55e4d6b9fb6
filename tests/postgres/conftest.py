"""Fixtures of the tests on a real PostgreSQL: `server` is one for each worker's session, `database` a new one for each
test; `start` and `upstream` are the black-box tests' own. A test that kills or reconfigures a server makes its own."""

import contextlib
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "tools"), os.path.join(HERE, "..", "blackbox")]

from harness import Gateway, Upstream  # noqa: E402
from postgres_server import PostgresServer  # noqa: E402


@pytest.fixture(scope="session")
def server():
    if PostgresServer.missing() is not None:
        pytest.skip(PostgresServer.missing())
    with PostgresServer() as running:
        yield running


@pytest.fixture
def database(server):
    """The URI of an empty database."""
    return server.uri(server.database())


@pytest.fixture
def upstream():
    one = Upstream()
    yield one
    one.close()


@pytest.fixture
def start(tmp_path):
    """Start gateways that are stopped, and checked, at the end: start(config_text, name="a")."""
    with contextlib.ExitStack() as stops:  # one that does not stop keeps none of the others running

        def begin(config, name="gateway", **more):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            gateway = Gateway(folder, config, **more)
            stops.callback(gateway.stop)
            return gateway.start()

        yield begin
