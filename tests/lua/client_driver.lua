--- Plays srun and salloc: loads cli_filter.lua by its path and starts the clients that it reads, one a line.
-- Usage: lua client_driver.lua HERE CLI_FILTER [LIBRARIES,TO,HIDE]; each answer is one line of JSON.
local here, script, hidden = arg[1], arg[2], arg[3]
package.path = here .. "/?.lua;" .. package.path
local codec = require("dkjson")
local socket_found, socket = pcall(require, "socket")

for name in (hidden or ""):gmatch("[^,]+") do
   package.loaded[name] = nil
   package.preload[name] = function()
      error(name .. " is hidden by the test")
   end
end

local said = { shown = {}, reasons = {} }
-- What Slurm gives a client's script; it has no log_user that works.
slurm = {
   log_info = function(...)
      said.shown[#said.shown + 1] = string.format(...)
   end,
   log_debug = function(...)
      said.reasons[#said.reasons + 1] = string.format(...)
   end,
}

local function copy(values)
   local result = {}
   for key, value in pairs(values) do
      result[key] = value
   end
   return result
end

--- Memory as Slurm shows it (mbytes_to_str), whatever unit it was set in: `512M` is 512, `1024M` is 1G.
local function shown(name, value)
   local mib = name:find("^mem") and type(value) == "string" and tonumber(value:match("^(%d+)M$"))
   if not mib then
      return value
   end
   return mib % 1024 == 0 and string.format("%dG", mib / 1024) or string.format("%d", mib)
end

--- Options as a client shows them: text by name, and `type`. A name in `refused` silently takes no write; one
-- in `rewritten` takes, once, the text given there instead of the one written.
local function options_of(client, values)
   return setmetatable({}, {
      __index = function(_, name)
         if name == "type" then
            return client.type
         end
         return shown(name, values[name])
      end,
      __newindex = function(_, name, value)
         assert(type(value) == "string", "string expected")
         local rewritten = (client.rewritten or {})[name]
         if rewritten then
            values[name], client.rewritten[name] = rewritten, nil
         elseif not (client.refused or {})[name] then
            values[name] = value
         end
      end,
   })
end

local function differences(before, after)
   local changed = {}
   for name, value in pairs(after) do
      if before[name] ~= value then
         changed[name] = value
      end
   end
   return changed
end

local function run(client)
   said.shown, said.reasons = {}, {}
   local values = copy(client.options)
   local json_text = client.json
   if not json_text then
      local all = copy(client.options)
      all.argv = setmetatable(client.argv or {}, { __jsontype = "array" })
      json_text = codec.encode(all)
   end
   slurm.json_cli_options = function()
      return json_text
   end
   local begin_s = socket_found and socket.gettime() or os.clock()
   local completed, rc = pcall(slurm_cli_pre_submit, options_of(client, values), client.offset or 0)
   local end_s = socket_found and socket.gettime() or os.clock()
   return {
      rc = rc,
      raised = not completed,
      took_ms = (end_s - begin_s) * 1000,
      writes = setmetatable(differences(client.options, values), { __jsontype = "object" }),
      shown = setmetatable(said.shown, { __jsontype = "array" }),
      reasons = setmetatable(said.reasons, { __jsontype = "array" }),
   }
end

assert(loadfile(script))()
print(codec.encode({ slurm_cli_setup_defaults({}, true), slurm_cli_post_submit(0, 1, 2) }))
io.stdout:flush()
for line in io.lines() do
   print(codec.encode(run(codec.decode(line))))
   io.stdout:flush()
end
