"""What is done to entries in Redis or Valkey in one step each: scripts in Lua, which the server runs alone.

Keys, behind a prefix that is the first argument of every script:

    e:ID                hash: an entry; p:KEY for its principals, r:KEY for rejected texts, n:NUMBER for notes
    o:ID, g:ID          sets: SIZE:NUMBER of its wordings, and its tags
    w:SIZE:NUMBER       hash: a wording; SIZE is that of its vector in bytes, NUMBER rises over all
    s:SPACE             sorted set: SIZE:NUMBER of the wordings of a space, by number
    k:ROOM KEY          sorted set: ids of the entries of a room that know a text, by number
    t:TAG               set: ids
    all, expiry         sorted sets: ids by number, and by the time when they expire
    bytes, wordings     hashes: of each id, so that sums stay right when the server drops an entry
    quarantined         set: ids
    sums                hash: bytes, wordings
    samples:POOL        stream
    pools               set: those that have samples
    audit               stream
    tallies             hash
    number              the latest that was given: microseconds of the server's clock, or one more than the one before,
                        so that none is given twice, even by a server that was emptied, or dropped this key

Every key that belongs to entries ends with the last of them. Scripts make up keys as they go, so a cluster of servers
cannot run them.
"""

from __future__ import annotations

_PRELUDE = """
local prefix = ARGV[1]
local call = redis.call
local function at(kind, name) return prefix .. kind .. (name or '') end
local function number(text) return tonumber(text) or math.huge end
local function lives(created, expires, now, skew)
  return number(created) - skew <= now and now < number(expires)
end
local function add_to(key, life, command, ...)  -- life: milliseconds, 0 for ever
  local left = call('PTTL', key)  -- -2: there is none, -1: it has no end
  call(command, key, ...)
  if life == 0 or left == -1 then call('PERSIST', key) else call('PEXPIRE', key, math.max(left, life)) end
end
local function next_number()
  local time = call('TIME')
  local n = math.max(time[1] * 1000000 + time[2], (tonumber(call('GET', at('number'))) or 0) + 1)
  local text = string.format('%.0f', n)
  call('SET', at('number'), text)
  return text
end
local function confirm(id, who, most)
  local key = at('e:', id)
  if who == '' or number(call('HGET', key, 'counted')) >= most then return end
  if call('HSETNX', key, 'p:' .. who, '') == 1 then call('HINCRBY', key, 'counted', 1) end
end
local function grow(id, size, wordings)
  call('HINCRBY', at('bytes'), id, size)
  call('HINCRBY', at('wordings'), id, wordings)
  call('HINCRBY', at('sums'), 'bytes', size)
  call('HINCRBY', at('sums'), 'wordings', wordings)
end
local function add_wording(id, life, room, space, open_space, text_key, text, vector, seal)
  local n = next_number()
  local own = #vector .. ':' .. n
  add_to(at('w:', own), life, 'HSET', 'entry', id, 'room', room, 'space', space, 'open_space', open_space,
    'text_key', text_key, 'text', text, 'vector', vector, 'seal', seal)
  add_to(at('s:', space), life, 'ZADD', n, own)
  add_to(at('k:', room .. text_key), life, 'ZADD', 'NX', n, id)
  add_to(at('o:', id), life, 'SADD', own)
end
local function remove_wording(id, own)
  local key = at('w:', own)
  local room, space, text_key, text, vector =
    unpack(call('HMGET', key, 'room', 'space', 'text_key', 'text', 'vector'))
  call('SREM', at('o:', id), own)
  if not space then return 0 end
  call('ZREM', at('s:', space), own)
  call('ZREM', at('k:', room .. text_key), id)
  call('DEL', key)
  return #text + #vector
end
local function remove(id)
  local was = call('ZREM', at('all'), id)
  for _, own in ipairs(call('SMEMBERS', at('o:', id))) do remove_wording(id, own) end
  for _, tag in ipairs(call('SMEMBERS', at('g:', id))) do call('SREM', at('t:', tag), id) end
  local size, wordings = call('HGET', at('bytes'), id), call('HGET', at('wordings'), id)
  if size then grow(id, -size, -wordings) end
  call('HDEL', at('bytes'), id)
  call('HDEL', at('wordings'), id)
  call('ZREM', at('expiry'), id)
  call('SREM', at('quarantined'), id)
  call('DEL', at('e:', id), at('o:', id), at('g:', id))
  return was
end
local function audit(time, act, subject, note, entries)
  local n = next_number()
  if note ~= '' and entries > 0 then call('HSET', at('e:', subject), 'n:' .. n, note) end
  call('XADD', at('audit'), 'MAXLEN', '~', 100000, n .. '-0', 'at', time, 'act', act, 'subject', subject,
    'entries', entries)
end
"""

PUT = (
    _PRELUDE
    + """
-- prefix, now, skew, most principals, id, open room, answer, cluster, created, expires, worth, size, who, life,
-- room, space, open space, text key, text, vector, seal, tags ...
-- Returns the id of the entry that knows the text, be it in quarantine or this one.
local now, skew, id, life, text_key = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5], tonumber(ARGV[14]), ARGV[18]
for _, gone in ipairs(call('ZRANGEBYSCORE', at('expiry'), '-inf', ARGV[2], 'LIMIT', 0, 64)) do remove(gone) end
for _, other in ipairs(call('ZRANGE', at('k:', ARGV[15] .. text_key), 0, -1)) do
  local created, expires, rejected = unpack(call('HMGET', at('e:', other), 'created', 'expires', 'r:' .. text_key))
  if created and not rejected and lives(created, expires, now, skew) then return other end
end
add_to(at('e:', id), life, 'HSET', 'room', ARGV[15], 'open_room', ARGV[6], 'text_key', text_key,
  'answer', ARGV[7], 'cluster', ARGV[8],
  'created', ARGV[9], 'expires', ARGV[10], 'worth', ARGV[11], 'counted', 0, 'vetted', 0, 'quarantined', 0)
confirm(id, ARGV[13], tonumber(ARGV[4]))
add_wording(id, life, unpack(ARGV, 15, 21))
grow(id, tonumber(ARGV[12]), 1)
call('ZADD', at('all'), next_number(), id)
call('ZADD', at('expiry'), ARGV[10], id)
for i = 22, #ARGV do
  add_to(at('t:', ARGV[i]), life, 'SADD', id)
  add_to(at('g:', id), life, 'SADD', ARGV[i])
end
return id
"""
)

ADD_WORDING = (
    _PRELUDE
    + """
-- prefix, now, skew, most principals, id, who, most wordings, room, space, open space, text key, text, vector, seal
-- Returns the entry's room and open room where they are not the wording's.
local id, space, text_key = ARGV[5], ARGV[9], ARGV[11]
local key = at('e:', id)
local room, open_room, created, expires, quarantined, rejected =
  unpack(call('HMGET', key, 'room', 'open_room', 'created', 'expires', 'quarantined', 'r:' .. text_key))
if not room then return end
if room ~= ARGV[8] then return {room, open_room} end
if rejected or quarantined == '1' or not lives(created, expires, tonumber(ARGV[2]), tonumber(ARGV[3])) then return end
confirm(id, ARGV[6], tonumber(ARGV[4]))
local kept = call('SMEMBERS', at('o:', id))
if #kept >= tonumber(ARGV[7]) then return end
for _, own in ipairs(kept) do
  local its_space, its_key = unpack(call('HMGET', at('w:', own), 'space', 'text_key'))
  if its_space == space and its_key == text_key then return end
end
add_wording(id, math.max(0, call('PTTL', key)), unpack(ARGV, 8, 14))
grow(id, #ARGV[12] + #ARGV[13], 1)
"""
)

NEW_WORDINGS = (
    _PRELUDE
    + """
-- prefix, space, latest number, most. Returns names and vectors, in turn, in order.
local found = {}
for _, own in ipairs(call('ZRANGEBYSCORE', at('s:', ARGV[2]), '(' .. ARGV[3], '+inf', 'LIMIT', 0, ARGV[4])) do
  table.insert(found, own)
  local vector = call('HGET', at('w:', own), 'vector')
  if not vector then call('ZREM', at('s:', ARGV[2]), own) end
  table.insert(found, vector)
end
return found
"""
)

LOOK_UP = (
    _PRELUDE
    + """
-- prefix, text key, SIZE:NUMBER ... Returns for each what is known of wording and entry, nothing if one is gone.
local found = {}
for i = 3, #ARGV do
  local w = call('HMGET', at('w:', ARGV[i]), 'entry', 'text', 'vector', 'seal')
  local e = w[1] and call('HMGET', at('e:', w[1]), 'cluster', 'created', 'expires', 'counted', 'vetted', 'quarantined',
    'r:' .. ARGV[2]) or {}
  if e[1] then
    found[i - 2] = {w[1], w[2], w[3], w[4], e[1], e[2], e[3], e[4], e[5], e[6], e[7] and 1 or 0}
  else
    found[i - 2] = {}
  end
end
return found
"""
)

WORDINGS = (
    _PRELUDE
    + """
-- prefix, now, skew, space, latest number, most. Returns for each wording its number, and cluster, text and vector if
-- its entry may be used.
local found = {}
for _, own in ipairs(call('ZRANGEBYSCORE', at('s:', ARGV[4]), '(' .. ARGV[5], '+inf', 'LIMIT', 0, ARGV[6])) do
  local id, text, vector = unpack(call('HMGET', at('w:', own), 'entry', 'text', 'vector'))
  local cluster, created, expires, quarantined =
    unpack(call('HMGET', at('e:', id or ''), 'cluster', 'created', 'expires', 'quarantined'))
  local is_used = vector and cluster and quarantined == '0' and
    lives(created, expires, tonumber(ARGV[2]), tonumber(ARGV[3]))
  table.insert(found, is_used and {own, cluster, text, vector} or {own})
end
return found
"""
)

REJECT = (
    _PRELUDE
    + """
-- prefix, id, text key
local id, text_key = ARGV[2], ARGV[3]
local key = at('e:', id)
local own_key = call('HGET', key, 'text_key')
if not own_key then return end
call('HSET', key, 'r:' .. text_key, '')
if own_key == text_key then
  call('HSET', key, 'quarantined', 1)
  call('SADD', at('quarantined'), id)
  return
end
for _, own in ipairs(call('SMEMBERS', at('o:', id))) do
  if call('HGET', at('w:', own), 'text_key') == text_key then grow(id, -remove_wording(id, own), -1) end
end
"""
)

MARK = (
    _PRELUDE
    + """
local function share(id)  -- whether it may be
  local key = at('e:', id)
  local open_room, text_key = unpack(call('HMGET', key, 'open_room', 'text_key'))
  if not open_room or open_room == '' then return 0 end
  local names = {'space', 'open_space', 'text_key', 'text', 'vector', 'seal'}
  local has, missing = {}, {}
  for _, own in ipairs(call('SMEMBERS', at('o:', id))) do
    local space, open_space, its_key, text, vector, seal = unpack(call('HMGET', at('w:', own), unpack(names)))
    if space == open_space then has[space] = true
    elseif its_key == text_key and open_space ~= '' then missing[open_space] = {text, vector, seal} end
  end
  for space, of in pairs(missing) do
    if not has[space] then
      add_wording(id, math.max(0, call('PTTL', key)), open_room, space, space, text_key, unpack(of))
      grow(id, #of[1] + #of[2], 1)
    end
  end
  return 1
end
-- prefix, now, id, act, note. Returns how many entries there are of this id.
local id = ARGV[3]
local key = at('e:', id)
local found = call('EXISTS', key)
if ARGV[4] == 'share' then found = share(id) end
if found == 1 then
  if ARGV[4] == 'quarantine' then
    call('HSET', key, 'quarantined', 1)
    call('SADD', at('quarantined'), id)
  else
    call('HSET', key, 'vetted', 1, 'quarantined', 0)
    call('SREM', at('quarantined'), id)
  end
end
audit(ARGV[2], ARGV[4], id, ARGV[5], found)
return found
"""
)

DELETE = (
    _PRELUDE
    + """
-- prefix, now, id, act; no line is written for an empty act. Returns how many entries there were.
local found = remove(ARGV[3])
if ARGV[4] ~= '' then audit(ARGV[2], ARGV[4], ARGV[3], '', found) end
return found
"""
)

INVALIDATE = (
    _PRELUDE
    + """
-- prefix, now, tag, most, how many went before. Returns how many went now; the line is written with the last.
local ids = call('SRANDMEMBER', at('t:', ARGV[3]), ARGV[4])
local found = 0
for _, id in ipairs(ids) do
  found = found + remove(id)
  call('SREM', at('t:', ARGV[3]), id)
end
if #ids == 0 then audit(ARGV[2], 'invalidate', ARGV[3], '', tonumber(ARGV[5])) end
return {#ids, found}
"""
)

RECORD = (
    _PRELUDE
    + """
-- prefix, pool, most, names and values ...
local n = next_number()
call('SADD', at('pools'), ARGV[2])
call('XADD', at('samples:', ARGV[2]), 'MAXLEN', ARGV[3], n .. '-0', unpack(ARGV, 4))
"""
)

TALLY = (
    _PRELUDE
    + """
-- prefix, names and counts ...
for i = 2, #ARGV, 2 do call('HINCRBY', at('tallies'), ARGV[i], ARGV[i + 1]) end
"""
)
