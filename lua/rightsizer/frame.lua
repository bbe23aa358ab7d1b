--- Writes a request of wire version 1: one line of JSON, at most 64 KiB including its newline.
local text = require("rightsizer.text")

local frame = {}

frame.VERSION = 1
frame.MAX_REQUEST_BYTES = 65536

-- Bytes of a script's beginning, which says what it does, and of its end, where it starts its steps.
local SCRIPT_BYTES = 8192
local TEXT_BYTES = {
   user = 1024, account = 1024, partition = 1024, qos = 1024, name = 1024, comment = 1024, work_dir = 1024,
}

local calls, first_us = 0, nil

--- Returns sixteen hexadecimal digits that no other call of this slurmctld shares: the time of the first call
-- and the number of this one.
function frame.new_id(now_s)
   first_us = first_us or math.floor(now_s * 1e6) % 4294967296
   calls = (calls + 1) % 4294967296
   return string.format("%08x%08x", first_us, calls)
end

local function cut_texts(ask)
   for name, limit in pairs(TEXT_BYTES) do
      ask[name] = ask[name] and text.cut(ask[name], limit)
   end
end

--- `other` is inserted by hand: an empty Lua table would be encoded as an object.
local function encode(codec, id, kind, job, other)
   local job_text = codec.encode(job)
   local list_text = #other > 0 and codec.encode(other) or "[]"
   return string.format('{"v":%d,"id":"%s","kind":"%s","job":', frame.VERSION, id, kind)
      .. job_text:sub(1, -2) .. ',"other":' .. list_text .. "}}\n"
end

--- Returns the request for `ask`, of kind `submit` unless another is given; nil and a reason if it cannot be
-- made to fit. Cuts the texts in `ask` itself, and removes its `other`. Bytes that are not UTF-8 are sent as
-- they are: the service replaces each by a question mark. A script full of control characters grows sixfold
-- when it is escaped: it is halved until the line fits.
function frame.request(codec, id, ask, kind)
   local script, other = ask.script, ask.other
   local script_bytes = SCRIPT_BYTES
   cut_texts(ask)
   ask.other = nil
   repeat
      ask.script = script and text.ends(script, script_bytes)
      local line = encode(codec, id, kind or "submit", ask, other)
      if #line <= frame.MAX_REQUEST_BYTES then
         return line
      end
      script_bytes = math.floor(script_bytes / 2)
   until script_bytes == 0
   return nil, "request_too_long"
end

return frame
