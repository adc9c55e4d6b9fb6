"""A private PostgreSQL server for a test: in a temporary folder, on loopback only, with durability on as Hapax demands.

    with PostgresServer() as server:
        server.uri("postgres")      # the superuser's address of a database
        server.database()           # a new, empty database's name
        server.kill(); server.start()   # SIGKILL of all its processes, and recovery

PostgresServer.missing() says why there can be none on this machine, or None."""

import glob
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PATIENCE_S = 60


def binaries_folder():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[4].split(".")[0]))
    return found[-1] if found else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def as_postgres():
    """The server refuses root: what to put before its commands."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=TERM"]


class PostgresServer:
    """settings: of postgresql.conf, by name. The port stays the same over restarts. `within`: the folder to make its
    own in, which its user must be able to enter."""

    def __init__(self, primary=None, within=None, **settings):
        self.binaries = binaries_folder()
        self.settings = {"max_connections": "150", "shared_buffers": "64MB", "logging_collector": "off", **settings}
        self.folder = tempfile.mkdtemp(prefix="hapax-postgres-", dir=within)
        self.data = self.folder + "/data"
        self.process = None
        self.port = None
        self.numbers = itertools.count(1)
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        made = [self.binaries + "/initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                "--locale=C.UTF-8", "--no-sync"]
        if primary is not None:
            made = [self.binaries + "/pg_basebackup", "-D", self.data, "-d", primary.uri(), "-R", "-c", "fast", "--no-sync"]
        subprocess.run(as_postgres() + made, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def standby(self):
        """A hot standby of this running server, not started yet. promote() makes a primary of it."""
        return PostgresServer(primary=self, **self.settings)

    def promote(self):
        self.sql("SELECT pg_promote()")

    @staticmethod
    def missing():
        if binaries_folder() is None:
            return "there is no PostgreSQL in /usr/lib/postgresql (dev/deps test)"
        return None

    def spawn(self):
        options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        with open(self.folder + "/log", "ab") as log:
            self.process = subprocess.Popen(as_postgres() + [
                self.binaries + "/postgres", "-D", self.data, "-h", "127.0.0.1", "-p", str(self.port),
                "-k", self.folder] + options, stdout=log, stderr=subprocess.STDOUT, cwd="/", start_new_session=True)

    def accepts(self):
        ready = [self.binaries + "/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def start(self):
        """The first time another process may take the port first: then another one is tried."""
        first = self.port is None
        for _ in range(5):
            if first:
                self.port = free_port()
            self.spawn()
            deadline = time.monotonic() + PATIENCE_S
            while self.process.poll() is None and time.monotonic() < deadline:
                if self.accepts():
                    return self
                time.sleep(0.05)
            self.stop()
        raise RuntimeError("the server does not start:\n" + self.log_text()[-2000:])

    def stop(self):
        """Sessions are ended and what is in memory is written ("fast")."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait()
        self.process = None

    def kill(self):
        """SIGKILL of all the server's processes at once: start() recovers from the log."""
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], check=True,
                                  capture_output=True, text=True).stdout.split()
        self.process.kill()
        for child in children:
            try:
                os.kill(int(child), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.process = None

    def freeze(self, frozen=True):
        """SIGSTOP, or SIGCONT, of the server and its sessions of this moment."""
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], check=True,
                                  capture_output=True, text=True).stdout.split()
        for pid in [self.process.pid, *map(int, children)]:
            try:
                os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)
            except ProcessLookupError:
                pass

    def uri(self, database="postgres", user="postgres", port=None):
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def sql(self, text, database="postgres"):
        """Run as the superuser; rows as lists of text."""
        run = subprocess.run([self.binaries + "/psql", "-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-d",
                              self.uri(database), "-c", text], check=False, capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(run.stderr)
        return [line.split("\t") for line in run.stdout.splitlines()]

    def database(self):
        """A new, empty one; its name."""
        name = f"test_{os.getpid()}_{next(self.numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def log_text(self):
        with open(self.folder + "/log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def close(self):
        """At once: nothing of it is needed any more."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
        self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()
