-- The load: POST with a 200-byte JSON body that depends only on the key. REPEATS is the percentage of requests
-- that repeat an earlier key:
--   0    (default) a new key for each request
--   100  every request takes one of KNOWN keys, which bench/run has sent once before
--   else spread evenly, a repeat takes the key that was new LAG new keys ago, so that its answer is there
local KNOWN, LAG = 512, 1024
local repeats = tonumber(os.getenv("REPEATS") or "0")
local sent, fresh, nonce = 0, 0, 0

function init()
  local random = io.open("/dev/urandom", "rb")
  local bytes = random:read(4)
  random:close()
  nonce = bytes:byte(1) * 2 ^ 24 + bytes:byte(2) * 65536 + bytes:byte(3) * 256 + bytes:byte(4)
end

local function known_key() return string.format("00000001-0000-4000-8000-%012x", sent % KNOWN) end

local function new_key(number) return string.format("%08x-0000-4000-8000-%012x", nonce, number) end

local function next_key()
  sent = sent + 1
  if sent * repeats % 100 < repeats then
    if repeats >= 100 or fresh <= LAG then return known_key() end
    return new_key(fresh - LAG)
  end
  fresh = fresh + 1
  return new_key(fresh)
end

function request()
  local key = next_key()
  local body = '{"order_id":"' .. key .. '","amount":129900,"currency":"EUR","note":"'
  body = body .. string.rep("n", 198 - #body) .. '"}'
  return "POST " .. wrk.path .. " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: "
    .. key .. "\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

function done(summary, latency)
  io.write(string.format("RESULT %d %.6f %.3f %.3f %.3f %d %d\n", summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
