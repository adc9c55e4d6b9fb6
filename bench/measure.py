"""What is measured, and how: processes and their trees, the disk, the load, the machine.

Every server is started by Servers and ended by its id. Nothing here knows what is being compared."""

import concurrent.futures
import http.client
import os
import pathlib
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("HAPAX_BUILD") or ROOT / "build")
HAPAX = BUILD / "hapax"
LOAD = ROOT / "bench/load.lua"
KNOWN_KEYS = 512  # as in load.lua


class Unusable(Exception):
    """A subject can't be measured here; the text says why."""


def note(text):
    """One line of progress on standard error."""
    if sys.stderr.isatty():
        print(f"\r\033[Kbench: {text}", end="", file=sys.stderr, flush=True)
    else:
        print(f"bench: {text}", file=sys.stderr, flush=True)


def clear_note():
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


# --- processes -------------------------------------------------------------------------------------


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Servers:
    """Processes that are ended, the last one first, when the block is left."""

    def __init__(self):
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            self.end(process)

    def start(self, command, port, log, **more):
        """Start a server and wait until it listens. Its output goes to the file `log`."""
        with open(log, "ab") as output:
            process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=output, **more)
        self.processes.append(process)
        for _ in range(1200):
            if process.poll() is not None:
                text = pathlib.Path(log).read_text(errors="replace").strip()[-500:]
                raise Unusable(f"{command[0]} ended at its start: {text}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return process
            except OSError:
                time.sleep(0.05)
        raise Unusable(f"{command[0]} does not listen on {port} after a minute")

    def end(self, process):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def tree(pid):
    """The process and its living descendants."""
    found = [pid]
    for listing in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in listing.read_text().split():
                found += tree(int(child))
        except OSError:
            pass
    return found


def read_proc(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def field(text, name):
    match = re.search(rf"^{name}:\s*(\d+)", text, re.M)
    return int(match[1]) if match else 0


def device_bytes(folder):
    """Written to the disk of a folder so far, by whomever. Where pages are kept in large folios, what the kernel counts for
    a process is many times that: each write of a part counts the whole."""
    device = os.stat(folder).st_dev
    try:
        return int(pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()[6]) * 512
    except OSError:
        return 0


class Usage:
    """CPU and disk of process trees since begin(), and the most memory at one time of each process, added up."""

    def __init__(self, processes):
        self.roots = [p.pid for p in processes]

    def all(self):
        return [pid for root in self.roots for pid in tree(root)]

    def counted(self):
        """CPU ticks and bytes written, those of ended children (a rewrite of Redis's file) included."""
        ticks = written = 0
        for pid in self.all():
            stat = read_proc(pid, "stat").rsplit(")", 1)[-1].split()
            ticks += sum(int(n) for n in stat[11:15])
            written += field(read_proc(pid, "io"), "write_bytes")
        return ticks, written

    def begin(self):
        for pid in self.all():
            try:
                pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here
            except OSError:
                pass
        self.before = self.counted()

    def end(self, requests):
        ticks, written = (after - before for after, before in zip(self.counted(), self.before))
        peak = sum(field(read_proc(pid, "status"), "VmHWM") for pid in self.all())
        return {
            "cpu_us": ticks * 1e6 / os.sysconf("SC_CLK_TCK") / max(1, requests),
            "disk_bytes": written / max(1, requests),
            "peak_mib": peak / 1024,
        }


# --- load ------------------------------------------------------------------------------------------


def wrk(port, connections, seconds, repeats=0):
    result = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", LOAD, f"http://127.0.0.1:{port}/orders"],
        env={**os.environ, "REPEATS": str(repeats)}, capture_output=True, text=True)
    match = re.search(r"RESULT (\S+) (\S+) (\S+) (\S+) (\S+) (\d+) (\d+)", result.stdout)
    if not match:
        raise Unusable(f"wrk: {(result.stdout + result.stderr).strip()[-300:]}")
    requests, duration, p50, p99, most, status, errors = match.groups()
    return {"requests": int(requests), "rps": int(requests) / float(duration), "p50_ms": float(p50),
            "p99_ms": float(p99), "max_ms": float(most), "refused": int(status), "bad": int(status) + int(errors)}


def send_some(port, numbers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for number in numbers:
        key = f"00000001-0000-4000-8000-{number:012x}"
        body = f'{{"order_id":"{key}","amount":129900,"currency":"EUR","note":"'
        body += "n" * (198 - len(body)) + '"}'
        connection.request("POST", "/orders", body, {"Content-Type": "application/json", "Idempotency-Key": key})
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise Unusable(f"answered {response.status} to a plain request")
    connection.close()


def send_known_keys(port):
    """Each known key once, so that what follows is a replay."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(send_some, port, range(n, KNOWN_KEYS, 16)) for n in range(16)]:
            done.result()


def metric(admin, name):
    """A number of the gateway's metrics page, added up over its labels."""
    page = urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=60).read().decode()
    numbers = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)", page, re.M)
    if not numbers:
        raise Unusable(f"the gateway has no metric {name}")
    return sum(float(n) for n in numbers)


# --- machine ---------------------------------------------------------------------------------------


def sync_us(folder, count=200):
    """Median times of a 4 KiB write's fdatasync: (where the file has its blocks already, at the end of a file that
    grows). The first is what a commit costs at least here."""
    path = folder / "sync"
    medians = []
    with open(path, "wb", buffering=0) as file:
        for _ in range(2):
            times = []
            file.seek(0)
            for _ in range(count):
                file.write(b"x" * 4096)
                start = time.perf_counter()
                os.fdatasync(file.fileno())
                times.append((time.perf_counter() - start) * 1e6)
            medians.append(statistics.median(times))
    path.unlink()
    growing, in_place = medians
    return in_place, growing


def version(*command):
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return "not there"
    lines = (result.stdout + result.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"


def file_system(folder):
    result = subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "-T", folder], capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def machine(folder):
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = field(pathlib.Path("/proc/meminfo").read_text(), "MemTotal")
    in_place, growing = sync_us(folder)
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory": f"{memory / (1 << 20):.0f} GiB",
        "kernel": platform.release(),
        "disk": f"{file_system(folder)}, fdatasync of 4 KiB: {in_place:.0f} us in place, {growing:.0f} us in a growing file",
        "busy before": f"load average {os.getloadavg()[0]:.1f}",
        "hapax": version(HAPAX, "--version"),
        "nginx": version("nginx", "-v"),
        "redis": version("redis-server", "--version")[:60],
        "node": version("node", "--version"),
        "wrk": version("wrk", "-v").split(" Copyright")[0],
    }
