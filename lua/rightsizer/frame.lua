--- Writes a request of wire version 1: one line of JSON, at most 64 KiB with its newline.
local text = require("rightsizer.text")

local frame = {}

frame.VERSION = 1
frame.MAX_REQUEST_BYTES = 65536

local SCRIPT_BYTES = 8192
local TEXT_BYTES = {
   user = 1024, account = 1024, partition = 1024, qos = 1024, name = 1024, comment = 1024, work_dir = 1024,
}

local calls = 0

--- Sixteen hexadecimal digits that no other call of this slurmctld shares.
function frame.new_id(now_s)
   calls = (calls + 1) % 65536
   local microseconds = math.floor(now_s * 1e6) % 4294967296
   return string.format("%08x%04x%04x", microseconds, calls, math.random(0, 65535))
end

--- On Lua 5.3 and 5.4 a Slurm number is a float that some encoders print as 8.0.
local as_integer = math.tointeger or function(value)
   return value
end

local function on_the_wire(ask)
   local job = {}
   for key, value in pairs(ask) do
      if TEXT_BYTES[key] then
         job[key] = text.clean(value, TEXT_BYTES[key])
      elseif type(value) == "number" then
         job[key] = as_integer(value)
      elseif key ~= "other" and key ~= "script" then
         job[key] = value
      end
   end
   return job
end

--- `other` is put in by hand: an empty Lua table would be encoded as an object.
local function encode(codec, id, kind, job, other)
   local job_text = codec.encode(job)
   local list_text = #other > 0 and codec.encode(other) or "[]"
   return string.format('{"v":%d,"id":"%s","kind":"%s","job":', frame.VERSION, id, kind)
      .. job_text:sub(1, -2) .. ',"other":' .. list_text .. "}}\n"
end

--- The request for `ask`, of the kind `submit` unless another is given; nil and a reason when it cannot be
-- made to fit.
-- A script full of control characters grows sixfold when it is escaped: it is halved until the line fits.
function frame.request(codec, id, ask, kind)
   local job = on_the_wire(ask)
   local script_bytes = SCRIPT_BYTES
   repeat
      job.script = ask.script and text.clean(ask.script, script_bytes)
      local line = encode(codec, id, kind or "submit", job, ask.other)
      if #line <= frame.MAX_REQUEST_BYTES then
         return line
      end
      script_bytes = math.floor(script_bytes / 2)
   until script_bytes == 0
   return nil, "request_too_long"
end

return frame
