--- Talks to the service: one line out, one line back, within one deadline, over a connection that is kept.
-- Any failure ends the connection, so that no answer can be taken for that of another call. breaker.lua
-- decides when not to call. slurmctld waits meanwhile: nothing may wait past the deadline or leak a socket.
local client = {}

client.MAX_REPLY_BYTES = 16384

local DRAIN_BYTES = 8192
--- A double holds today's time to a quarter of a microsecond: a sum and its difference may differ by that
-- much.
local CLOCK_ROUNDING_S = 0.001

local time, new_socket

--- LuaSocket 2 provides a function that makes the socket, LuaSocket 3 a table of such functions.
-- The libraries are looked for until they are found, then kept: a require at every call would take a tenth of
-- the call's time.
local function load_libraries()
   if new_socket then
      return true
   end
   local has_time, socket_library = pcall(require, "socket")
   local has_unix, unix = pcall(require, "socket.unix")
   if not has_time or not has_unix then
      return nil, "no_socket_library"
   end
   time, new_socket = socket_library, type(unix) == "table" and (unix.stream or unix.tcp) or unix
   return true
end

--- Returns a function that returns the seconds left, or nil if none are: never a negative number, since a
-- negative timeout waits for ever. The wall clock is the only fine clock here; if it is set back, the time
-- counts as used up.
local function countdown(gettime, budget_s)
   local deadline_s = gettime() + budget_s
   return function()
      local left_s = deadline_s - gettime()
      if left_s <= 0 or left_s > budget_s + CLOCK_ROUNDING_S then
         return nil
      end
      return left_s
   end
end

--- Maps LuaSocket's words for why a call failed to the names in our log.
local function failure(message, otherwise)
   if message == "timeout" then
      return "deadline"
   end
   return message == "closed" and "closed" or otherwise
end

local function send(socket, line, time_left)
   local sent = 0
   while sent < #line do
      local left_s = time_left()
      if not left_s then
         return nil, "deadline"
      end
      socket:settimeout(left_s, "t")
      local last, message, partial = socket:send(line, sent + 1)
      if not last and message ~= "timeout" then
         return nil, failure(message, "send_failed")
      end
      sent = last or partial or sent
   end
   return true
end

--- Returns what has arrived: waits for one byte, then takes what the buffer holds without waiting.
-- LuaSocket's own line reader has no limit: it would read an endless line for ever.
local function receive_some(socket, left_s)
   socket:settimeout(left_s, "t")
   local first, message = socket:receive(1)
   if not first then
      return nil, failure(message, "receive_failed")
   end
   socket:settimeout(0, "t")
   local rest, _, partial = socket:receive(DRAIN_BYTES)
   return first .. (rest or partial or "")
end

--- About a tenth of a millisecond: longer than most answers take from then on.
local LOOKS = 150

--- Looks for the first byte of the answer so many times without sleeping; nil if it has not arrived.
local function look(socket, times)
   socket:settimeout(0, "t")
   for _ = 1, times do
      local byte, message = socket:receive(1)
      if byte or message ~= "timeout" then
         return byte
      end
   end
   return nil
end

--- Passes the time until the answer comes, unless it is there already (a service that was woken on this
-- processor had it to itself). Returns the first byte of the answer, or nil. The nap, of at least 60 µs, is
-- for a service that waits for this very processor. After it, this stays awake: putting a processor to sleep
-- and waking it takes longer than an answer that comes soon.
local function pass_time(socket, meanwhile)
   local byte = look(socket, 1)
   if not byte then
      pcall(meanwhile)
      time.sleep(0)
      byte = look(socket, LOOKS)
   end
   return byte
end

--- Returns the line that begins with `received`.
local function receive_line(socket, time_left, received)
   local newline = received:find("\n", 1, true)
   while not newline and #received <= client.MAX_REPLY_BYTES do
      local left_s = time_left()
      if not left_s then
         return nil, "deadline"
      end
      local chunk, reason = receive_some(socket, left_s)
      if not chunk then
         return nil, reason
      end
      received = received .. chunk
      newline = received:find("\n", 1, true)
   end
   if not newline or newline > client.MAX_REPLY_BYTES then
      return nil, "reply_too_long"
   end
   return received:sub(1, newline - 1), nil, newline < #received
end

local function converse(socket, line, time_left, meanwhile)
   local sent, reason = send(socket, line, time_left)
   if not sent then
      return nil, reason
   end
   local byte = meanwhile and pass_time(socket, meanwhile)
   return receive_line(socket, time_left, byte or "")
end

--- Returns seconds since the epoch as a fraction; nil and a reason without LuaSocket.
function client.now_s()
   local loaded, reason = load_libraries()
   if not loaded then
      return nil, reason
   end
   return time.gettime()
end

--- The connection that is kept, and the path it leads to.
local kept, kept_path

--- Ends the kept connection: for a caller to whom the reply made no sense, or who asks only once.
function client.hang_up()
   if kept then
      kept:close()
      kept = nil
   end
end

local function connect(path, time_left)
   local left_s = time_left()
   if not left_s then
      return nil, "deadline"
   end
   local socket = new_socket()
   if not socket then
      return nil, "no_socket"
   end
   kept, kept_path = socket, path
   socket:settimeout(left_s, "t")
   local connected, message = socket:connect(path)
   return connected, failure(message, "connect_failed")
end

--- The service may have been restarted and have closed the kept connection: whatever fails on it, except for
-- lack of time, is tried once more on a new one.
local function ask(path, line, time_left, meanwhile)
   if kept and kept_path == path then
      local reply, reason, is_followed = converse(kept, line, time_left, meanwhile)
      if reply or reason == "deadline" then
         return reply, reason, is_followed
      end
   end
   client.hang_up()
   local connected, failed = connect(path, time_left)
   if not connected then
      return nil, failed
   end
   return converse(kept, line, time_left)
end

--- Sends `line` (with its newline) to the socket at `path`. Returns the line that comes back, or nil and a
-- reason. `meanwhile` (nil: nothing) may be called once the line is on its way; the answer is then looked for
-- without sleeping.
function client.exchange(path, line, deadline_ms, meanwhile)
   local loaded, missing = load_libraries()
   if not loaded then
      return nil, missing
   end
   local time_left = countdown(time.gettime, deadline_ms / 1000)
   local completed, reply, reason, is_followed = pcall(ask, path, line, time_left, meanwhile)
   if not completed or not reply or is_followed then
      client.hang_up()
   end
   if not completed then
      return nil, "socket_error"
   end
   return reply, reason
end

return client
