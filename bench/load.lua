-- The load: POST with a 200-byte JSON body that depends only on the key.
-- REPEAT=0 (default): a new key for each request; REPEAT=N: every request takes one of N keys.
local repeat_keys = tonumber(os.getenv("REPEAT") or "0")
local count, nonce = 0, 0

function init()
  local random = io.open("/dev/urandom", "rb")
  local bytes = random:read(4)
  random:close()
  nonce = bytes:byte(1) * 2 ^ 24 + bytes:byte(2) * 65536 + bytes:byte(3) * 256 + bytes:byte(4)
  if repeat_keys > 0 then nonce = 1 end
end

function request()
  count = count + 1
  local number = repeat_keys > 0 and count % repeat_keys or count
  local key = string.format("%08x-0000-4000-8000-%012x", nonce, number)
  local body = '{"order_id":"' .. key .. '","amount":129900,"currency":"EUR","note":"'
  body = body .. string.rep("n", 198 - #body) .. '"}'
  return "POST " .. wrk.path .. " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: "
    .. key .. "\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

function done(summary, latency)
  io.write(string.format("RESULT %.1f %.3f %.3f %d %d\n", summary.requests / (summary.duration / 1e6),
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
