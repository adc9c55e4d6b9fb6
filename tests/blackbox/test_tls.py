"""TLS on both sides, with certificates made on the spot."""

import socket
import ssl
import subprocess
import threading

import pytest
from harness import HAPAX, Answer, Connection, Listener, Upstream, at_once, config_for, request_bytes, wait_until


def openssl(folder, *arguments):
    subprocess.run(["openssl", *map(str, arguments)], cwd=folder, check=True, capture_output=True)


class Authority:
    """A certificate authority in a folder: authority.pem, and NAME.pem with NAME.key for what it has issued."""

    def __init__(self, folder, name):
        self.folder = folder
        self.name = name
        openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.pem")
        self.path = folder / f"{name}.pem"

    def issue(self, name, subjects, days="2"):
        folder = self.folder
        (folder / f"{name}.ext").write_text(f"subjectAltName={subjects}\n")
        openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
                f"{name}.csr")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key",
                "-CAcreateserial", "-days", days, "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        return folder / f"{name}.pem", folder / f"{name}.key"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"), "stranger")


@pytest.fixture(scope="module")
def issued(authority):
    return authority.issue("good", "DNS:localhost,IP:127.0.0.1")


def server_context(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


# --- The upstream ----------------------------------------------------------------------------------


def test_an_https_upstream_whose_authority_is_known_is_asked(start, authority, issued):
    upstream = Upstream(tls=server_context(issued))
    try:
        gateway = start(config_for(upstream, ca=authority.path))
        assert [gateway.post("/orders", "k").marker for _ in range(2)] == ["executed", "replayed"]
        assert gateway.request("GET", "/x").status == 201
        answers = at_once(16, lambda i: gateway.post("/orders", f"k-{i}", b'"' + b"x" * 100_000 + b'"'))
        assert {a.marker for a in answers} == {"executed"}
        assert len(upstream.effects()) == 18
    finally:
        upstream.close()


def assert_not_asked(gateway, upstream):
    try:
        for _ in range(2):
            answer = gateway.post("/orders", "k")
            assert (answer.status, answer.problem, answer.marker) == (502, "upstream-unreachable", "released")
        assert gateway.request("GET", "/x").problem == "upstream-unreachable"
        assert gateway.operation("orders POST /orders -", "k").status == 404
        assert upstream.effects() == []
    finally:
        upstream.close()


def test_an_upstream_of_an_unknown_authority_is_not_asked(start, stranger, issued):
    upstream = Upstream(tls=server_context(issued))
    assert_not_asked(start(config_for(upstream, ca=stranger.path)), upstream)


def test_the_systems_authorities_do_not_know_ours(start, issued):
    upstream = Upstream(tls=server_context(issued))
    assert_not_asked(start(config_for(upstream)), upstream)


def test_an_upstream_with_another_name_is_not_asked(start, authority):
    upstream = Upstream(tls=server_context(authority.issue("other", "DNS:other.test")))
    assert_not_asked(start(config_for(upstream, ca=authority.path)), upstream)


def test_an_upstream_that_speaks_no_tls_is_not_asked(start, upstream, authority):
    gateway = start(config_for(f"https://localhost:{upstream.port}", ca=authority.path, connect_timeout="500ms"))
    answer = gateway.post("/orders", "k")
    assert (answer.status, answer.problem, answer.marker) == (502, "upstream-unreachable", "released")
    assert upstream.effects() == []


def test_an_upstream_that_hangs_in_the_handshake_is_given_up(start, authority):
    def handle(sock, reader, number):
        reader.to_end()

    upstream = Listener(handle)
    gateway = start(config_for(f"https://localhost:{upstream.port}", ca=authority.path, connect_timeout="300ms"))
    answer = gateway.post("/orders", "k")
    assert (answer.status, answer.problem, answer.marker) == (502, "upstream-unreachable", "released")
    upstream.close()


def test_an_answer_cut_off_below_tls_is_not_taken_for_complete(start, authority, issued):
    """Its end is that of the connection; anyone on the path can make that up unless TLS says it."""
    context = server_context(issued)

    def handle(sock, reader, number):
        secured = context.wrap_socket(sock, server_side=True)
        data = b""
        while b"\r\n\r\n" not in data:
            data += secured.recv(65536)
        secured.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"balance\": 100")
        raw = socket.socket(fileno=secured.detach())
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(65536):
            pass
        raw.close()

    upstream = Listener(handle)
    gateway = start(config_for(f"https://localhost:{upstream.port}", ca=authority.path))
    answer = gateway.post("/orders", "k")
    assert (answer.status, answer.problem, answer.marker) == (502, "outcome-unknown", "unknown")
    upstream.close()


# --- The listener ----------------------------------------------------------------------------------


@pytest.fixture
def secure(start, upstream, issued, authority):
    """A gateway that speaks https, and connect() for clients that trust its authority."""
    gateway = start(config_for(upstream, tls=f"{{certificate: {issued[0]}, key: {issued[1]}}}", timeouts="{header: 1s}"))
    trust = ssl.create_default_context(cafile=authority.path)
    gateway.connect = lambda: Connection(gateway.port, tls=trust)
    return gateway


def test_clients_speak_https(secure, upstream):
    assert [secure.post("/orders", "k").marker for _ in range(2)] == ["executed", "replayed"]
    assert upstream.effects()[0].get("X-Forwarded-Proto") == "https"
    with secure.connect() as connection:
        assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")
        for i in range(5):
            answer = connection.request("POST", "/orders", [("Idempotency-Key", f"k-{i}")], b'"' + b"x" * 200_000 + b'"')
            assert answer.marker == "executed"
    upstream.answer = Answer(200, [], b"a" * (3 << 20))
    assert len(secure.request("GET", "/large").body) == 3 << 20
    assert len(secure.post("/orders", "k-large").body) == 3 << 20


def test_many_https_clients_with_one_key_make_one_effect(secure, upstream):
    upstream.answer = Answer(201, delay_s=0.2)
    answers = at_once(24, lambda _: secure.post("/orders", "k"))
    assert {(a.status, a.body) for a in answers} == {(201, b'{"ok":true}')}
    assert len(upstream.effects()) == 1


def test_a_client_that_trusts_another_authority_is_not_talked_into_it(secure, stranger):
    context = ssl.create_default_context(cafile=stranger.path)
    with pytest.raises(ssl.SSLCertVerificationError):
        Connection(secure.port, tls=context)


@pytest.mark.filterwarnings("ignore:.*TLSv1:DeprecationWarning")
def test_old_tls_is_refused(secure):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="alert protocol version"):  # told so by the gateway
        Connection(secure.port, tls=context)
    assert secure.post("/orders", "k").marker == "executed"


def test_clients_without_tls_and_those_that_hang_in_the_handshake_are_cut(secure, upstream):
    plain = Connection(secure.port)
    plain.send(request_bytes("POST", "/orders", [("Idempotency-Key", "k")], b"{}"))
    silent = [Connection(secure.port) for _ in range(20)]
    for client in silent:
        client.send(b"\x16\x03\x01\x02\x00")  # the beginning of a handshake
    plain.is_closed_by_peer()
    for client in silent:
        assert client.is_closed_by_peer()
    assert secure.post("/orders", "k-2").marker == "executed"
    assert [r.get("Idempotency-Key") for r in upstream.effects()] == ["k-2"]


def test_an_https_client_that_leaves_gets_its_answer_later(secure, upstream):
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    connection = secure.connect()
    connection.send(request_bytes("POST", "/orders", [("Idempotency-Key", "k")], b"{}"))
    wait_until(upstream.effects, "the upstream works")
    connection.close()
    release.set()
    wait_until(lambda: secure.operation("orders POST /orders -", "k").json()["state"] == "done", "it is stored")
    assert secure.request("POST", "/orders", [("Idempotency-Key", "k")], b"{}").marker == "replayed"


def test_a_certificate_that_can_not_be_read_is_named_at_the_start(tmp_path, upstream, issued):
    config = tmp_path / "hapax.yaml"
    for certificate, key in ((tmp_path / "none.pem", issued[1]), (issued[0], tmp_path / "none.key"), (issued[0], issued[0])):
        config.write_text(config_for(upstream, tls=f"{{certificate: {certificate}, key: {key}}}"))
        done = subprocess.run([HAPAX, "serve", "--config", config, "--listen", "127.0.0.1:0", "--admin", "off", "--store",
                               "memory:"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        wrong = key if key != issued[1] else certificate
        assert done.returncode != 0 and str(wrong.name) in done.stderr, done.stderr


def test_a_reload_takes_a_renewed_certificate(start, upstream, authority, stranger, tmp_path):
    certificate, key = authority.issue("renewed", "DNS:localhost")
    config = config_for(upstream, tls=f"{{certificate: {certificate}, key: {key}}}")
    gateway = start(config)
    first = ssl.create_default_context(cafile=authority.path)
    second = ssl.create_default_context(cafile=stranger.path)
    with Connection(gateway.port, tls=first) as kept:
        assert kept.request("GET", "/x").status == 201
        new_certificate, new_key = stranger.issue("renewed", "DNS:localhost")
        certificate.write_bytes(new_certificate.read_bytes())
        key.write_bytes(new_key.read_bytes())
        gateway.reload()
        with Connection(gateway.port, tls=second) as connection:
            assert connection.request("GET", "/x").status == 201
        with pytest.raises(ssl.SSLCertVerificationError):
            Connection(gateway.port, tls=first)
        assert kept.request("GET", "/x").status == 201
        key.write_text("no key")
        gateway.reload()
        with Connection(gateway.port, tls=second) as connection:
            assert connection.request("GET", "/x").status == 201
