"""Lua scripts of a Redis store: what must happen at one moment.

Each begins by comparing the store's epoch with the one its caller knows, and does nothing where they differ:
a Redis that was restored, restarted or failed over in between is noticed before anything is written to it.
Versions, tokens, positions and sequence numbers come from counters of the hash `meta`; a new epoch moves them
past the time in microseconds, so that none is given out twice, even if the latest writes were lost.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

WRONG_EPOCH: Final = "FAIRLEAD_EPOCH"
CONFLICT: Final = b"conflict"
LOST: Final = b"lost"

_CHECK_EPOCH: Final = f"""
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return redis.error_reply('{WRONG_EPOCH}') end
local function write(key, index, member, value, ttl)
    local version = string.format('%016.0f', redis.call('HINCRBY', KEYS[1], 'version', 1))
    redis.call('SET', key, version .. value)
    if ttl ~= '' then redis.call('PEXPIRE', key, ttl) end
    redis.call('ZADD', index, 0, member)
    return version
end
local function refusal(key, expect, lease, token)
    if token ~= '' and redis.call('HGET', lease, 'token') ~= token then return 'lost' end
    local stored = redis.call('GETRANGE', key, 0, 15)
    if expect ~= 'any' and stored ~= expect then return 'conflict' end
    return nil
end
local function now()
    local time = redis.call('TIME')
    return tonumber(time[1]) + tonumber(time[2]) / 1000000
end
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, and the digest that Redis knows it by."""

    text: bytes
    digest: str


def _script(body: str, *, checked: bool = True) -> Script:
    text = ((_CHECK_EPOCH if checked else "") + body).encode()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


# KEYS: meta, messages. ARGV: run id of the server, a new epoch, the origin that the store must have or '', a
# new origin, a sealed check. The origin stays for as long as the store has its data: another one is the mark
# of a store that was emptied, and begun anew by another process. The last part of the answer is 1 where this
# call, of all processes', is the one that ended an epoch.
BEGIN: Final = _script(
    """
local meta, epoch, ended = KEYS[1], redis.call('HGET', KEYS[1], 'epoch'), '0'
local origin = redis.call('HGET', KEYS[1], 'origin')
if ARGV[3] ~= '' and (not epoch or (origin and origin ~= ARGV[3])) then return false end
if not origin then
    origin = ARGV[3] ~= '' and ARGV[3] or ARGV[4]
    redis.call('HSET', meta, 'origin', origin)
end
if not epoch or redis.call('HGET', meta, 'run') ~= ARGV[1] then
    local time = redis.call('TIME')
    if epoch then redis.call('HSET', meta, 'began', string.format('%.6f', time[1] + time[2] / 1000000)) end
    local start = tonumber(time[1]) * 1000000 + tonumber(time[2])
    for _, counter in ipairs({'version', 'token', 'message', 'sequence'}) do
        local last = tonumber(redis.call('HGET', meta, counter) or '0')
        redis.call('HSET', meta, counter, string.format('%.0f', math.max(last, start)))
    end
    redis.call('HSETNX', meta, 'check', ARGV[5])
    redis.call('HSETNX', meta, 'layout', '1')
    redis.call('HSET', meta, 'epoch', ARGV[2], 'run', ARGV[1])
    -- Subscribers see a gap, and read again what may have changed.
    local position = redis.call('HINCRBY', meta, 'message', 1)
    redis.call('XADD', KEYS[2], string.format('%.0f-0', position), 't', '', 'p', '')
    ended = epoch and '1' or '0'
    epoch = ARGV[2]
end
return {epoch, origin, redis.call('HGET', meta, 'layout'), redis.call('HGET', meta, 'check'), ended}
""",
    checked=False,
)

# KEYS: meta, value. An emptied store must not be taken for one without this value.
GET: Final = _script("""
return redis.call('GET', KEYS[2])
""")

# KEYS: meta, value, index, lease of the fence. ARGV: epoch, expected version, fencing token, member, value,
# milliseconds that it lives or ''.
PUT: Final = _script("""
return refusal(KEYS[2], ARGV[2], KEYS[4], ARGV[3]) or write(KEYS[2], KEYS[3], ARGV[4], ARGV[5], ARGV[6])
""")

# As PUT, without the value and its ttl.
DELETE: Final = _script("""
local refused = refusal(KEYS[2], ARGV[2], KEYS[4], ARGV[3])
if refused then return refused end
redis.call('ZREM', KEYS[3], ARGV[4])
return tostring(redis.call('DEL', KEYS[2]))
""")

# KEYS: meta, then value and index of each. ARGV: epoch, then member and value of each.
PUT_ALL: Final = _script("""
for number = 1, (#ARGV - 1) / 2 do
    write(KEYS[number * 2], KEYS[number * 2 + 1], ARGV[number * 2], ARGV[number * 2 + 1], '')
end
return 'done'
""")

# KEYS: meta, index. ARGV: epoch, the values' prefix, lowest and highest member.
SCAN: Final = _script("""
local members = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[3], ARGV[4])
local found = {}
for first = 1, #members, 1000 do
    local keys = {}
    for number = first, math.min(first + 999, #members) do keys[#keys + 1] = ARGV[2] .. members[number] end
    for offset, value in ipairs(redis.call('MGET', unpack(keys))) do
        local member = members[first + offset - 1]
        if value then
            found[#found + 1] = member
            found[#found + 1] = value
        else
            redis.call('ZREM', KEYS[2], member)
        end
    end
end
return found
""")

# KEYS: meta, lease. ARGV: epoch, seconds, 1 where a lease of the epoch before may not be forgotten.
# The distance counts, so that a clock set back frees it too.
ACQUIRE: Final = _script("""
local held = redis.call('HMGET', KEYS[2], 'renewed', 'seconds')
local at = now()
local began = ARGV[3] == '1' and redis.call('HGET', KEYS[1], 'began')
if began and math.abs(at - tonumber(began)) < tonumber(ARGV[2]) then return false end
if held[1] and math.abs(at - tonumber(held[1])) < tonumber(held[2]) then return false end
local token = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'token', 1))
redis.call('HSET', KEYS[2], 'token', token, 'renewed', string.format('%.6f', at), 'seconds', ARGV[2])
-- A lease that ran out and was not taken still protects; after a day there is nothing left to protect.
redis.call('EXPIRE', KEYS[2], math.ceil(tonumber(ARGV[2])) + 86400)
return token
""")

# KEYS: meta, lease. ARGV: epoch, fencing token.
RENEW: Final = _script("""
if redis.call('HGET', KEYS[2], 'token') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[2], 'renewed', string.format('%.6f', now()))
redis.call('EXPIRE', KEYS[2], math.ceil(tonumber(redis.call('HGET', KEYS[2], 'seconds'))) + 86400)
return 1
""")
RELEASE: Final = _script("""
if redis.call('HGET', KEYS[2], 'token') ~= ARGV[2] then return 0 end
return redis.call('DEL', KEYS[2])
""")

# KEYS: meta, messages. ARGV: epoch, how many are kept, topic, payload.
PUBLISH: Final = _script("""
local position = string.format('%.0f-0', redis.call('HINCRBY', KEYS[1], 'message', 1))
redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[2], position, 't', ARGV[3], 'p', ARGV[4])
return position
""")

# KEYS: meta, writer. ARGV: epoch, prefix of logs, number of the first record or '', then log, time and value
# of each. What the writer has written before is left out: its answer was lost, and it tries again.
APPEND: Final = _script("""
local last = ARGV[3] ~= '' and tonumber(redis.call('GET', KEYS[2]) or '-1') or -1
local count = (#ARGV - 3) / 3
for record = 0, count - 1 do
    if ARGV[3] == '' or tonumber(ARGV[3]) + record > last then
        local sequence = string.format('%.0f-0', redis.call('HINCRBY', KEYS[1], 'sequence', 1))
        local field = 4 + record * 3
        redis.call('XADD', ARGV[2] .. ARGV[field], sequence, 't', ARGV[field + 1], 'v', ARGV[field + 2])
    end
end
if ARGV[3] ~= '' and count > 0 then
    redis.call('SET', KEYS[2], string.format('%.0f', tonumber(ARGV[3]) + count - 1), 'EX', 86400)
end
return count
""")

# KEYS: meta, log. ARGV: epoch, time before which records go, how many at most: others want their turn.
PRUNE: Final = _script("""
local removed = 0
for _, record in ipairs(redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', ARGV[3])) do
    if tonumber(record[2][2]) >= tonumber(ARGV[2]) then break end
    removed = removed + redis.call('XDEL', KEYS[2], record[1])
end
return removed
""")

# KEYS: meta, bucket. ARGV: epoch, tokens a minute (and at most), how many are wanted.
TAKE: Final = _script("""
local per_minute, wanted, at = tonumber(ARGV[2]), tonumber(ARGV[3]), now()
local bucket = redis.call('HMGET', KEYS[2], 'left', 'at')
local left = per_minute
if bucket[1] then
    local since = math.max(0, at - tonumber(bucket[2]))
    left = math.min(per_minute, tonumber(bucket[1]) + since * per_minute / 60)
end
local granted = math.min(wanted, math.floor(left))
redis.call('HSET', KEYS[2], 'left', string.format('%.6f', left - granted), 'at', string.format('%.6f', at))
redis.call('EXPIRE', KEYS[2], 120)
return {granted, string.format('%.6f', left - granted)}
""")
