// node-idempotency in front of an upstream, as its documentation wires it: onRequest, do the work, onResponse.
// Usage: node server.js PORT UPSTREAM_PORT REDIS_PORT. One process, on loopback.
"use strict";
const http = require("node:http");
const { Idempotency, IdempotencyErrorCodes } = require("@node-idempotency/core");
const { RedisStorageAdapter } = require("@node-idempotency/storage-adapter-redis");

const [port, upstreamPort, redisPort] = process.argv.slice(2).map(Number);
const agent = new http.Agent({ keepAlive: true, maxSockets: 256 });

function collect(stream) {
  return new Promise((resolve, reject) => {
    const parts = [];
    stream.on("data", (part) => parts.push(part));
    stream.on("end", () => resolve(Buffer.concat(parts)));
    stream.on("error", reject);
  });
}

function forward(request, body) {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", "content-length": body.length };
    const call = http.request(
      { host: "127.0.0.1", port: upstreamPort, path: request.url, method: request.method, headers, agent },
      async (answer) => resolve({ status: answer.statusCode, body: (await collect(answer)).toString() }),
    );
    call.on("error", reject);
    call.end(body);
  });
}

async function answer(idempotency, request) {
  const body = await collect(request);
  const about = {
    headers: request.headers, path: request.url, method: request.method, body: JSON.parse(body.toString()),
  };
  const stored = await idempotency.onRequest(about);
  if (stored) return { status: stored.additional.status, body: stored.body };
  const fresh = await forward(request, body);
  await idempotency.onResponse(about, { body: fresh.body, additional: { status: fresh.status } });
  return fresh;
}

function refusal(error) {
  const status = error.code === IdempotencyErrorCodes.REQUEST_IN_PROGRESS ? 409 : 500;
  return { status, body: JSON.stringify({ error: String(error.message) }) };
}

async function main() {
  const storage = new RedisStorageAdapter({ url: `redis://127.0.0.1:${redisPort}` });
  await storage.connect();
  const idempotency = new Idempotency(storage, {});
  const server = http.createServer(async (request, response) => {
    const { status, body } = await answer(idempotency, request).catch(refusal);
    response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
    response.end(body);
  });
  server.keepAliveTimeout = 60000;
  server.listen(port, "127.0.0.1", 4096);
  process.on("SIGTERM", () => process.exit(0));
}

main();
