import signal

import pytest
from harness import Gateway, Upstream, config_for

# Under nohup, and in the background of a shell, these are ignored; what the tests start would inherit that.
for number in signal.SIGHUP, signal.SIGINT, signal.SIGQUIT:
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture
def upstream():
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def start(tmp_path):
    """Start gateways that are stopped, and checked, at the end: start(config_text)."""
    started = []

    def begin(config, folder=None, **more):
        gateway = Gateway(folder or tmp_path, config, **more)
        started.append(gateway)
        return gateway.start()

    yield begin
    for gateway in started:
        gateway.stop()


@pytest.fixture
def gateway(upstream, start):
    """One gateway with all defaults in front of the upstream."""
    return start(config_for(upstream))
