--- Plays slurmctld: loads job_submit.lua by its path and submits the jobs that it reads, one on each line.
-- Usage: lua driver.lua HERE JOB_SUBMIT [LIBRARIES,TO,HIDE]; each answer is one line of JSON.
-- A text in a job may be given as {"hex": "6e6f"} (any bytes) or {"fill": "x", "times": 4000000}.
local here, script, hidden = arg[1], arg[2], arg[3]
package.path = here .. "/?.lua;" .. package.path
local fake_slurm = require("fake_slurm")
local codec = require("dkjson")
local socket_found, socket = pcall(require, "socket")

for name in (hidden or ""):gmatch("[^,]+") do
   package.loaded[name] = nil
   package.preload[name] = function()
      error(name .. " is hidden by the test")
   end
end

slurm = fake_slurm.new()

local function text_of(value)
   if type(value) ~= "table" then
      return value
   elseif value.hex then
      return (value.hex:gsub("%x%x", function(pair)
         return string.char(tonumber(pair, 16))
      end))
   elseif value.times then
      return string.rep(value.fill, value.times)
   end
   return value
end

--- Slurm pushes every number as a double: on Lua 5.3 and 5.4 they are floats.
local function as_slurm_gives(fields)
   local result = {}
   for name, value in pairs(fields) do
      value = text_of(value)
      result[name] = type(value) == "number" and value + 0.0 or value
   end
   return result
end

local function now_s()
   return socket_found and socket.gettime() or os.clock()
end

local function submit(fields)
   slurm.lines, slurm.shown = {}, {}
   local job_desc, values = fake_slurm.job_desc(fields)
   local started_s = now_s()
   local raised, rc = false, nil
   local completed, result = pcall(slurm_job_submit, job_desc, {}, 1000)
   if completed then
      rc = result
   else
      raised = result
   end
   return {
      rc = rc,
      raised = raised,
      took_ms = (now_s() - started_s) * 1000,
      writes = setmetatable(fake_slurm.differences(fields, values), { __jsontype = "object" }),
      lines = setmetatable(slurm.lines, { __jsontype = "array" }),
      shown = setmetatable(slurm.shown, { __jsontype = "array" }),
   }
end

local loaded, failure = pcall(assert(loadfile(script)))
print(codec.encode({
   loaded = loaded,
   failure = tostring(failure),
   lines = setmetatable(slurm.lines, { __jsontype = "array" }),
   modify = slurm_job_modify({}, {}, {}, 0),
}))
io.stdout:flush()
for line in io.lines() do
   print(codec.encode(submit(as_slurm_gives(codec.decode(line)))))
   io.stdout:flush()
end
