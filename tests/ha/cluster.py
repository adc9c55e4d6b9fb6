"""A high-availability cluster of Debian's packages on loopback: one etcd, NODES PostgreSQL servers that Patroni runs with
strict synchronous replication, and an HAProxy whose one port leads to whichever of them is the primary.

    with Cluster(folder) as cluster:
        cluster.uri("postgres"), cluster.hosts_uri("postgres")   # through HAProxy; all nodes, without it
        node = cluster.primary(); node.kill(); ...; node.start(); cluster.wait_until_healthy()

All are processes of this one (not of the services that the packages bring), on ports that the kernel chose, and end with
it; PostgreSQL, which refuses root, runs as user postgres then. missing() says why there can be none on this machine."""

import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("tools", "blackbox")]

from harness import wait_until  # noqa: E402
from postgres_server import as_postgres, binaries_folder, free_port  # noqa: E402

NODES = 3  # with two, strict synchronous replication would stop all writes until the killed one is back
PATIENCE_S = 120  # to bootstrap, fail over or rejoin on a busy machine

# Patroni wants loop_wait + 2 * retry_timeout <= ttl. A leader that vanishes is missed after ttl at the latest; one whose
# PostgreSQL died, at the next loop: primary_start_timeout 0 hands over instead of starting it again.
PATRONI = {"ttl": 10, "loop_wait": 1, "retry_timeout": 3, "primary_start_timeout": 0, "maximum_lag_on_failover": 1 << 20,
           "synchronous_mode": True, "synchronous_mode_strict": True}
# A standby whose WAL stream broke off asks again after 5 s by default, also in the middle of its promotion.
POSTGRES = {"synchronous_commit": "on", "wal_retrieve_retry_interval": "500ms", "max_connections": 100,
            "shared_buffers": "64MB"}
CHECK = "inter 500ms fastinter 200ms downinter 200ms fall 2 rise 1 on-marked-down shutdown-sessions"
SETTINGS = (f"Patroni: {', '.join(f'{name} {value}' for name, value in PATRONI.items())}\n"
            f"PostgreSQL: {', '.join(f'{name} {value}' for name, value in POSTGRES.items())}\n"
            f"HAProxy: timeout check 1s, {CHECK}")


def missing():
    """What there is not on this machine, or None."""
    for program, package in (("etcd", "etcd-server"), ("patroni", "patroni"), ("haproxy", "haproxy")):
        if shutil.which(program, path="/usr/bin:/usr/sbin") is None:
            return f"there is no {program} (package {package}; dev/deps test)"
    return None if binaries_folder() else "there is no PostgreSQL in /usr/lib/postgresql (dev/deps test)"


def spawn(command, log_path):
    """In a session of its own, as PostgreSQL's user, with SIGTERM should this process die. From the main thread only:
    the kernel sends that signal when the thread ends."""
    alone = as_postgres() or ["setpriv", "--pdeathsig=TERM"]
    with open(log_path, "ab") as log:
        return subprocess.Popen(alone + command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/",
                                start_new_session=True)


def descendants(root):
    """The process and all its children's children, parents first."""
    table = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], check=True, capture_output=True, text=True).stdout
    children = {}
    for line in table.splitlines():
        pid, parent = map(int, line.split())
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def signal_all(pids, what):
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass


class Haproxy:
    """One frontend: sections is the text after the defaults, with {port} for its port."""

    def __init__(self, folder, name, mode, sections):
        self.port = free_port()
        self.path = folder / f"{name}.cfg"
        self.path.write_text(
            "global\n  maxconn 1000\n"
            f"defaults\n  mode {mode}\n  timeout connect 1s\n  timeout client 30m\n  timeout server 30m\n  timeout check 1s\n"
            f"listen {name}\n  bind 127.0.0.1:{self.port}\n" + sections)
        self.log_path = folder / f"{name}.log"
        self.process = spawn(["/usr/sbin/haproxy", "-db", "-f", str(self.path)], self.log_path)

    def accepts(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        self.process.kill()
        self.process.wait()


class Node:
    """A PostgreSQL server and the Patroni that runs it."""

    def __init__(self, folder, name, etcd_port):
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        give_away(self.folder)
        self.data = self.folder / "data"
        self.port, self.rest_port = free_port(), free_port()
        self.patroni = None
        self.config_path = self.folder / "patroni.json"
        self.config_path.write_text(json.dumps(self.config(etcd_port), indent=1))

    def config(self, etcd_port):
        return {
            "scope": "hapax", "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.rest_port}", "connect_address": f"127.0.0.1:{self.rest_port}"},
            "etcd3": {"host": f"127.0.0.1:{etcd_port}"},
            "watchdog": {"mode": "off"},
            "bootstrap": {
                "dcs": {**PATRONI, "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": POSTGRES}},
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, {"auth": "trust"}, "data-checksums", "no-sync"]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}", "connect_address": f"127.0.0.1:{self.port}",
                "bin_dir": binaries_folder(), "data_dir": str(self.data), "pgpass": str(self.folder / "pgpass"),
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}},
                "parameters": {"unix_socket_directories": str(self.folder)},
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust",
                           "host replication all 127.0.0.1/32 trust"],
                "basebackup": [{"checkpoint": "fast"}],
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True}}

    def start(self):
        self.patroni = spawn(["/usr/bin/patroni", str(self.config_path)], self.folder / "patroni.log")

    def says(self, path):
        """Does Patroni's REST say yes: primary, replica or synchronous?"""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest_port}/{path}", timeout=2) as answer:
                return answer.status == 200
        except (OSError, urllib.error.HTTPError):
            return False

    def postgres_pids(self):
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            alive = os.path.realpath(f"/proc/{pid}/cwd") == os.path.realpath(self.data)
        except (OSError, ValueError, IndexError):
            return []
        return descendants(pid) if alive else []

    def patroni_pids(self):
        return descendants(self.patroni.pid) if self.patroni is not None else []

    def kill_postgres(self):
        signal_all(self.postgres_pids(), signal.SIGKILL)

    def freeze(self):
        """Both stand still: connections stay open, and nothing answers on them. Only kill() ends this."""
        signal_all(self.patroni_pids() + self.postgres_pids(), signal.SIGSTOP)

    def kill(self):
        if self.patroni is not None:
            signal_all(self.patroni_pids(), signal.SIGKILL)
            self.patroni.wait()
            self.patroni = None
        self.kill_postgres()

    def sql(self, text, database="postgres"):
        """Run as the superuser; rows as lists of text."""
        run = subprocess.run(
            [binaries_folder() + "/psql", "-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-d",
             f"postgresql://postgres@127.0.0.1:{self.port}/{database}?connect_timeout=5", "-c", text],
            check=False, capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(run.stderr)
        return [line.split("\t") for line in run.stdout.splitlines()]


def give_away(folder):
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)


class Cluster:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        give_away(self.folder)
        self.etcd = self.haproxy = None
        self.nodes = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        client, peer = (f"http://127.0.0.1:{port}" for port in (free_port(), free_port()))
        self.etcd = spawn(["/usr/bin/etcd", "--name", "one", "--data-dir", str(self.folder / "etcd"),
                           "--listen-client-urls", client, "--advertise-client-urls", client,
                           "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                           "--initial-cluster", f"one={peer}", "--log-level", "warn"], self.folder / "etcd.log")
        self.nodes = [Node(self.folder, f"n{i + 1}", client.rsplit(":", 1)[1]) for i in range(NODES)]
        for node in self.nodes:
            node.start()
        servers = "".join(f"  server {n.name} 127.0.0.1:{n.port} check port {n.rest_port}\n" for n in self.nodes)
        self.haproxy = Haproxy(self.folder, "haproxy", "tcp", "  option httpchk OPTIONS /primary\n"
                               f"  http-check expect status 200\n  default-server {CHECK}\n" + servers)
        self.wait_until_healthy()

    def close(self):
        for node in self.nodes:
            node.kill()
        if self.haproxy is not None:
            self.haproxy.close()
        if self.etcd is not None:
            self.etcd.kill()
            self.etcd.wait()

    def uri(self, database):
        return f"postgresql://postgres@127.0.0.1:{self.haproxy.port}/{database}"

    def hosts_uri(self, database):
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"

    def primary(self, other_than=None):
        """The node that Patroni says is it, or None."""
        return next((node for node in self.nodes if node is not other_than and node.says("primary")), None)

    def healthy_primary(self):
        """The primary when all others follow it, and one of them synchronously; else None."""
        primary = self.primary()
        if primary is None:
            return None
        others = [node for node in self.nodes if node is not primary]
        if not all(node.says("replica") for node in others) or not any(node.says("synchronous") for node in others):
            return None
        try:
            states = primary.sql("SELECT sync_state FROM pg_stat_replication"
                                 " WHERE state = 'streaming' AND usename = 'replicator'")
        except RuntimeError:
            return None
        return primary if len(states) >= len(others) and ["sync"] in states else None

    def wait_until_healthy(self):
        return wait_until(self.healthy_primary, "all nodes follow one primary, one of them synchronously", PATIENCE_S)
