"""Who is measured: each subject is a server in front of the same upstream, started once for a run.

A subject that can't run here raises Unusable with the reason; the run goes on without it and says so."""

import dataclasses
import os
import pathlib
import shutil
import sys

from measure import BUILD, HAPAX, ROOT, Unusable, free_ports

sys.path.append(str(ROOT / "tests/tools"))
import npm  # noqa: E402

STATIC = "nginx return 200"
PROXY = "nginx proxy_pass"
HAPAX_NAME = "hapax"
HAND_ALWAYS = "hand-built, always"
HAND_EVERYSEC = "hand-built, everysec"
NODE = "node-idempotency"

MODES = {
    STATIC: "1 worker; answers itself, keeps nothing (the upstream of all others)",
    PROXY: "1 worker, keep-alive to the upstream; keeps nothing",
    HAPAX_NAME: "SQLite WAL, synchronous=FULL: claim and answer each on stable storage before the next step",
    HAND_ALWAYS: "nginx (2 workers) + Lua + Redis, appendfsync always: claim and answer each on stable storage",
    HAND_EVERYSEC: "the same, appendfsync everysec: a power cut loses up to a second of claims and answers",
    NODE: "node-idempotency (1 process) over Redis, appendfsync always: claim and answer each on stable storage",
}

NGINX_HEAD = """worker_processes 1; daemon off; pid {run}/{name}.pid; error_log {run}/{name}.error;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {run}/{name}1;
  proxy_temp_path {run}/{name}2; fastcgi_temp_path {run}/{name}3; uwsgi_temp_path {run}/{name}4;
  scgi_temp_path {run}/{name}5; client_body_buffer_size 64k;
"""

UPSTREAM = NGINX_HEAD + """  server {{ listen 127.0.0.1:{port} backlog=4096;
    location / {{ default_type application/json; return 200 '{{"status":"ok","id":"ch_000000000000"}}'; }} }} }}
"""

PROXY_PASS = NGINX_HEAD + """  upstream up {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} backlog=4096;
    location / {{ proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; }} }} }}
"""

CONFIG = """listen: 127.0.0.1:{port}
admin: {{listen: 127.0.0.1:{admin}}}
store: "{store}"
routes:
  - {{name: orders, path: /, to: "http://127.0.0.1:{upstream}", tenant: none}}
"""


@dataclasses.dataclass
class Subject:
    name: str
    port: int
    processes: list  # whose CPU, disk and memory count
    admin: int = 0


def need(*programs):
    missing = [p for p in programs if shutil.which(p) is None]
    if missing:
        raise Unusable(f"{', '.join(missing)} not installed (dev/deps bench)")


def nginx(servers, run, name, text, **values):
    need("nginx")
    [port] = free_ports(1)
    config = run / f"{name}.conf"
    config.write_text(text.format(run=run, name=name, port=port, **values))
    process = servers.start(["nginx", "-p", run, "-c", config], port, run / f"{name}.log")
    return port, [process]


def start_upstream(servers, run):
    return Subject(STATIC, *nginx(servers, run, "upstream", UPSTREAM))


def start_proxy(servers, run, upstream):
    return Subject(PROXY, *nginx(servers, run, "proxy", PROXY_PASS, upstream=upstream))


def start_hapax(servers, run, upstream, name="hapax", store=None, under=()):
    """`store`: its URI; by default a new file. `under`: a command that runs the gateway, such as valgrind."""
    port, admin = free_ports(2)
    config = run / f"{name}.yaml"
    config.write_text(CONFIG.format(port=port, admin=admin, upstream=upstream, store=store or f"sqlite:{run}/{name}.db"))
    process = servers.start([*under, HAPAX, "serve", "--config", config], port, run / f"{name}.log")
    return Subject(HAPAX_NAME, port, [process], admin)


def start_redis(servers, run, name, fsync):
    need("redis-server")
    [port] = free_ports(1)
    data = run / name
    data.mkdir()
    process = servers.start(
        ["redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", data, "--save", "", "--appendonly", "yes",
         "--appendfsync", fsync], port, run / f"{name}.log")
    return port, process


def start_hand_built(servers, run, upstream, fsync):
    need("nginx")
    if not pathlib.Path("/usr/lib/nginx/modules/ngx_http_lua_module.so").exists():
        raise Unusable("libnginx-mod-http-lua not installed (dev/deps bench)")
    redis_port, redis = start_redis(servers, run, f"redis-{fsync}", fsync)
    [port] = free_ports(1)
    scratch = run / f"hand-built-{fsync}"
    scratch.mkdir()
    text = (ROOT / "bench/handbuilt/nginx.conf.in").read_text()
    for mark, value in [("@PORT@", port), ("@UP@", upstream), ("@REDIS@", redis_port), ("@RUN@", scratch)]:
        text = text.replace(mark, str(value))
    (scratch / "nginx.conf").write_text(text)
    process = servers.start(["nginx", "-p", scratch, "-c", scratch / "nginx.conf"], port, scratch / "log")
    return Subject(HAND_ALWAYS if fsync == "always" else HAND_EVERYSEC, port, [process, redis])


def install_node():
    """The packages of bench/node; returns the script."""
    try:
        return npm.install(ROOT / "bench/node", BUILD / "bench-node", "server.js")
    except RuntimeError as why:
        raise Unusable(f"{why} (dev/deps bench)") from why


def start_node(servers, run, upstream):
    need("redis-server")
    script = install_node()
    redis_port, redis = start_redis(servers, run, "redis-node", "always")
    [port] = free_ports(1)
    process = servers.start(["node", script, port, upstream, redis_port], port, run / "node.log",
                            env={**os.environ, "NODE_ENV": "production"})
    return Subject(NODE, port, [process, redis])
