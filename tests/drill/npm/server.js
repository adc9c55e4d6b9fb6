// An endpoint made idempotent by a library from npm over Redis, wired as the library's documentation shows:
// POST /orders, POST /other, GET /count, POST /crash and `Fail: once` as in ../servers.py.
// Usage: node server.js LIBRARY REDIS_PORT LISTENING_FD [STALL]: the STALL-th execution works until the process ends.
// Effects are counted in Redis, so that they outlive a crash.
"use strict";
const { randomUUID } = require("node:crypto");
const { setTimeout: sleep } = require("node:timers/promises");
const { createClient } = require("@redis/client");
const express = require("express");

const WORK_MS = 5;
const FOR_EVER_MS = 3600000;
const [library, redisPort, listeningFd, stall] = process.argv.slice(2);
const url = `redis://127.0.0.1:${redisPort}`;
let executions = 0;
const counters = createClient({ url, database: 1 });

// The work, without any thought of keys: an effect, and an answer with headers of all kinds.
async function work(request) {
  await sleep(++executions === Number(stall) ? FOR_EVER_MS : WORK_MS);
  if (request.get("fail") === "once" && (await counters.sAdd("failed", String(request.get("idempotency-key"))))) {
    return { status: 503, headers: { "retry-after": "0" }, body: { title: "for a moment" } };
  }
  await counters.incr(request.path);
  const id = randomUUID();
  const headers = {
    location: `/orders/${id}`, "set-cookie": `order=${id}; HttpOnly`,
    link: [`</orders/${id}/lines>; rel=lines`, `</orders/${id}/bill>; rel=bill`],
  };
  return { status: 201, headers, body: { id, at: String(process.hrtime.bigint()) } };
}

function send(response, answer) {
  response.status(answer.status).set(answer.headers).send(answer.body);
}

// express-idempotency: the middleware, and isHit() in the handler. Its defaults but for the adapter.
async function useExpressIdempotency(app) {
  const { idempotency, getSharedIdempotencyService } = require("express-idempotency");
  const RedisAdapter = require("express-idempotency-redis-adapter").default;
  const dataAdapter = new RedisAdapter({ connectionConfig: { url } });
  await dataAdapter.connect();
  app.use(idempotency({ dataAdapter }));
  return async (request, response) => {
    if (getSharedIdempotencyService().isHit(request)) return;
    send(response, await work(request));
  };
}

// @node-idempotency/core: onRequest, the work, onResponse with each answer. Keys are demanded; status and headers are
// kept in `additional`. Its errors become the statuses of the draft.
async function useNodeIdempotency() {
  const { Idempotency, IdempotencyErrorCodes } = require("@node-idempotency/core");
  const { RedisStorageAdapter } = require("@node-idempotency/storage-adapter-redis");
  const storage = new RedisStorageAdapter({ url });
  await storage.connect();
  const idempotency = new Idempotency(storage, { enforceIdempotency: true });
  const statuses = {
    [IdempotencyErrorCodes.REQUEST_IN_PROGRESS]: 409,
    [IdempotencyErrorCodes.IDEMPOTENCY_FINGERPRINT_MISSMATCH]: 422,
  };
  return async (request, response) => {
    const about = { method: request.method, headers: request.headers, path: request.path, body: request.body };
    let stored;
    try {
      stored = await idempotency.onRequest(about);
    } catch (error) {
      response.status(statuses[error.code] ?? 400).send({ title: error.message });
      return;
    }
    if (stored) {
      send(response, { ...stored.additional, body: stored.body });
      return;
    }
    const { status, headers, body } = await work(request);
    await idempotency.onResponse(about, { body, additional: { status, headers } });
    send(response, { status, headers, body });
  };
}

const LIBRARIES = { "express-idempotency": useExpressIdempotency, "@node-idempotency/core": useNodeIdempotency };

async function main() {
  await counters.connect();
  const app = express();
  app.get("/count", async (_, response) => {
    const [orders, other] = (await counters.mGet(["/orders", "/other"])).map(Number);
    response.send({ orders, other, total: orders + other });
  });
  app.post("/crash", () => process.kill(process.pid, "SIGKILL"));
  app.use(express.json());
  const handler = await LIBRARIES[library](app);
  app.post(["/orders", "/other"], (request, response, next) => handler(request, response).catch(next));
  app.listen({ fd: Number(listeningFd) }, () => console.log("ready"));
}

main();
