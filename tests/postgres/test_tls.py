"""TLS to the server, and passwords: given in every way that there is, and shown in none."""

import json
import os
import pathlib
import subprocess

import pytest
from harness import HAPAX, PATIENCE_S, config_for, wait_until
from postgres_server import PostgresServer

PASSWORD = "s3cr3t-p4ssw0rd"
ROLE = "shop"
HBA = """local all all trust
host all postgres all trust
hostssl certified all all cert
hostssl all all all scram-sha-256
"""


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)


def make_authority(folder, name):
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
            f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")


def make_certificate(folder, authority, name, subject, extension=None):
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={subject}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr")
    more = []
    if extension:
        (folder / "extension").write_text(extension)
        more = ["-extfile", "extension"]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-days", "2", "-out", f"{name}.pem", *more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Keys and certificates: two authorities, the server's for "localhost" only, a client's."""
    made = tmp_path_factory.mktemp("tls")
    make_authority(made, "authority")
    make_authority(made, "stranger")
    make_certificate(made, "authority", "server", "localhost", "subjectAltName=DNS:localhost\n")
    make_certificate(made, "authority", "client", ROLE)
    return made


@pytest.fixture(scope="module")
def secure(folder):
    """A server that takes TLS only, but for the superuser."""
    if PostgresServer.missing() is not None:
        pytest.skip(PostgresServer.missing())
    server = PostgresServer()
    place = pathlib.Path(server.folder)
    for name in ("server.key", "server.pem", "authority.pem"):
        (place / name).write_bytes((folder / name).read_bytes())
        (place / name).chmod(0o600)
        if os.geteuid() == 0:
            os.chown(place / name, place.stat().st_uid, place.stat().st_gid)
    server.settings |= {"ssl": "on", "ssl_cert_file": f"{place}/server.pem", "ssl_key_file": f"{place}/server.key",
                        "ssl_ca_file": f"{place}/authority.pem"}
    (place / "data" / "pg_hba.conf").write_text(HBA)
    with server:
        server.sql(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
        server.sql(f"CREATE DATABASE certified OWNER {ROLE}")
        yield server


@pytest.fixture
def database(secure):
    name = secure.database()
    secure.sql(f"ALTER DATABASE {name} OWNER TO {ROLE}")
    return name


def address(server, folder, database, host="localhost", password=PASSWORD, authority="authority", more=""):
    log_in = f"{ROLE}:{password}@" if password else f"{ROLE}@"
    return (f"postgresql://{log_in}{host}:{server.port}/{database}?sslmode=verify-full"
            f"&sslrootcert={folder}/{authority}.pem{more}")


class Shown:
    """Whatever anybody could read."""

    def __init__(self):
        self.texts = []

    def add(self, text):
        self.texts.append(text if isinstance(text, str) else text.decode())

    def check(self):
        for text in self.texts:
            assert PASSWORD not in text, text


@pytest.fixture
def shown():
    one = Shown()
    yield one
    one.check()


def run(shown, *arguments, environment=None, cwd=None):
    done = subprocess.run([str(HAPAX), *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=PATIENCE_S, env=environment, cwd=cwd)
    shown.add(done.stdout + done.stderr)
    return done


# --- ways to give it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["option", "config", "variable", "file", "PGPASSWORD", "passfile", "certificate"])
def test_a_gateway_logs_in_and_shows_no_password(way, secure, folder, database, upstream, start, shown, tmp_path):
    config, environment, store = config_for(upstream, log="{level: debug}"), {}, ""
    uri = address(secure, folder, database)
    bare = address(secure, folder, database, password=None)
    if way == "config":
        config = f"store: '{uri}'\n" + config
    elif way == "variable":
        config, environment = f"store: '{uri.replace(PASSWORD, '${DB_PASSWORD}')}'\n" + config, {"DB_PASSWORD": PASSWORD}
    elif way == "file":
        (tmp_path / "gateway").mkdir()
        (tmp_path / "gateway" / "store").write_text(uri + "\n")
        config = "store: {file: store}\n" + config
    elif way == "option":
        store = uri
    elif way == "PGPASSWORD":
        store, environment = bare, {"PGPASSWORD": PASSWORD}
    elif way == "passfile":
        passfile = tmp_path / "passfile"
        passfile.write_text(f"*:*:*:{ROLE}:{PASSWORD}\n")
        passfile.chmod(0o600)
        store = bare + f"&passfile={passfile}"
    else:
        (folder / "client.key").chmod(0o600)
        store = address(secure, folder, "certified", password=None,
                        more=f"&sslcert={folder}/client.pem&sslkey={folder}/client.key")
    gateway = start(config, store=store, environment=environment)
    shown.add(pathlib.Path(f"/proc/{gateway.process.pid}/cmdline").read_bytes())
    assert gateway.post("/orders", "one").status == 201
    assert gateway.post("/orders", "one").get("Idempotency-Status") == "replayed"
    assert len(upstream.effects("/orders")) == 1
    if way != "certificate":
        assert secure.sql(f"SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND datname = "
                          f"'{database}'") != [["0"]]
    for target in ("/readyz", "/metrics", "/v1/operations?scope=x&key=one"):
        shown.add(gateway.admin(target).body)
    environment = {**gateway.environment}
    for arguments in (["check", gateway.config_path], ["check", "--print", gateway.config_path],
                      ["check", "--json", "--print", gateway.config_path]):
        assert run(shown, *arguments, environment=environment, cwd=gateway.folder).returncode == 0
    gateway.stop()
    shown.add(gateway.log_text())


def test_commands_show_no_password(secure, folder, database, shown, tmp_path):
    uri = address(secure, folder, database)
    done = run(shown, "bench", "--existing", "--store", uri, "--seconds", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["setting"]["store"].endswith(f"localhost:{secure.port}/{database}?***")
    assert run(shown, "stats", "--store", uri).returncode == 0
    assert run(shown, "keys", "list", "--store", uri).returncode == 0


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case,words", [
    ("wrong host", "does not match host name"),
    ("unknown authority", "certificate verify failed"),
    ("no authority", "root certificate file"),
    ("wrong password", "password authentication failed"),
    ("no TLS", "no pg_hba.conf entry"),
    ("unreadable", "can't be read"),
    ("unreadable port", "can't be read"),  # not repeated: it may be a piece of a password
    ("unknown scheme", "store"),
])
def test_a_refusal_names_its_cause_and_no_password(case, words, secure, folder, database, upstream, shown, tmp_path):
    uri = {
        "wrong host": address(secure, folder, database, host="127.0.0.1"),
        "unknown authority": address(secure, folder, database, authority="stranger"),
        "no authority": address(secure, folder, database, authority="nobody"),
        "wrong password": address(secure, folder, database).replace("shop:", "shop:not-"),
        "no TLS": f"postgresql://{ROLE}:{PASSWORD}@localhost:{secure.port}/{database}?sslmode=disable",
        "unreadable": f"postgresql://{ROLE}:{PASSWORD}%zz@localhost/{database}",
        "unreadable port": f"postgresql://{ROLE}:{PASSWORD}@localhost:port/{database}",
        "unknown scheme": f"postgras://{ROLE}:{PASSWORD}@localhost/{database}",
    }[case]
    config = tmp_path / "hapax.yaml"
    config.write_text(f"store: '{uri}'\nlog: {{level: debug}}\nlisten: 127.0.0.1:0\nadmin: {{listen: 'off'}}\n" + config_for(upstream))
    served = run(shown, "serve", "--config", config, cwd=tmp_path)
    assert served.returncode > 0 and words in served.stderr, served.stderr
    run(shown, "check", config, cwd=tmp_path)
    for command in (["keys", "list"], ["stats"], ["bench", "--json", "--seconds", "1"],
                    ["serve", "--to", upstream.url, "--listen", "127.0.0.1:0", "--admin", "off"]):
        done = run(shown, *command, "--store", uri, cwd=tmp_path)
        assert done.returncode > 0, done


def test_the_password_leaves_the_arguments_of_the_process(secure, folder, database, upstream, start):
    """Given with --store, it is overwritten at once."""
    gateway = start(config_for(upstream), store=address(secure, folder, database))
    line = pathlib.Path(f"/proc/{gateway.process.pid}/cmdline").read_bytes()
    assert PASSWORD.encode() not in line and b"--store\0postgresql://***" in line
    wait_until(lambda: gateway.admin("/readyz").status == 200, "it works")
