--- One direct srun or salloc, before its client submits it: read the options, ask the service, check the
-- reply, lower the options. It never raises an error and never rejects: if anything goes wrong, the options
-- stay as they were, and the user sees nothing (`srun -vv` shows the reason).
local client = require("rightsizer.client")
local json = require("rightsizer.json")
local lowering = require("rightsizer.lowering")
local options = require("rightsizer.options")
local service = require("rightsizer.service")
local settings = require("rightsizer.settings")

local filter = {}

--- Found next to cli_filter.lua, or on package.path.
filter.SETTINGS_FILE = "rightsizer_clients"

--- The service reads this word exactly (docs/user.md); here anything that contains it counts as opting out.
local OPT_OUT = "rightsize=off"
local COMMAND_LINE = "/proc/self/cmdline"
local MAX_COMMAND_LINE_BYTES = 1048576

local site

--- Uses these settings from now on. Returns true, or nil and a message. A site's own cli_filter.lua may call
-- it.
function filter.configure(values)
   local checked, message = settings.checked(values)
   site = checked
   return checked ~= nil or nil, message
end

--- Uses the settings found in `folder` or on package.path. Returns true, or nil and a message.
function filter.load_settings(folder)
   local message
   site, message = settings.load(folder, filter.SETTINGS_FILE)
   return site ~= nil or nil, message
end

--- Returns the beginning of a file (empty if the file is empty); nil if it cannot be opened.
local function read_bytes(path, limit)
   local file = io.open(path, "rb")
   if not file then
      return nil
   end
   local bytes = file:read(limit) or ""
   file:close()
   return bytes
end

--- Whether a word of the command line is `:`, which separates the components of a heterogeneous job: the
-- filter is called for the first component before the others are read. Not known counts as yes.
local function may_be_heterogeneous()
   local line = read_bytes(COMMAND_LINE, MAX_COMMAND_LINE_BYTES)
   return not line or ("\0" .. line .. "\0"):find("\0:\0", 1, true) ~= nil
end

--- Returns why a client is to be left alone; nil if it may be sized.
local function why_not(kind, offset, to)
   if kind ~= "srun" and kind ~= "salloc" then
      return "not_direct"
   elseif os.getenv("SLURM_JOB_ID") or os.getenv("SLURM_JOBID") then
      return "inside_an_allocation"
   elseif not to then
      return "no_settings"
   elseif kind == "salloc" and not to.salloc then
      return "salloc_left_alone"
   elseif type(offset) == "number" and offset > 0 or may_be_heterogeneous() then
      return "het_job"
   elseif to.kill_switch and read_bytes(to.kill_switch, 1) then
      return "kill_switch"
   end
   return nil
end

local function decoded(codec, line, otherwise)
   local completed, value = pcall(codec.decode, line)
   if not completed or type(value) ~= "table" then
      return nil, otherwise
   end
   return value
end

--- Returns the options that the user set, and what they ask for; nil and a reason.
local function read_request(codec, fields, slurm, kind)
   local values, reason = decoded(codec, slurm.json_cli_options(fields), "options_unreadable")
   if not values then
      return nil, reason
   elseif values.jobid ~= nil then
      return nil, "inside_an_allocation"
   end
   local set, command = options.texts(values), {}
   if set.clusters then
      -- Neither what the service has learned nor Slurm's limits that it knows are of that cluster.
      return nil, "another_cluster"
   end
   if (set.comment or ""):lower():find(OPT_OUT, 1, true) then
      return nil, "opted_out"
   end
   for index, word in ipairs(type(values.argv) == "table" and values.argv or {}) do
      command[index] = tostring(word)
   end
   return set, options.read(set, kind, command)
end

--- Returns the writes of the service's decision, and its message for the user; nil and a reason.
local function consult(fields, slurm, kind)
   local codec, no_codec = json.codec()
   if not codec then
      return nil, no_codec
   end
   local set, ask = read_request(codec, fields, slurm, kind)
   if not set then
      return nil, ask
   end
   local decision, reason = service.ask(codec, ask, site.socket, site.deadline_ms, "cli")
   -- A client asks only once, and may then run for days.
   client.hang_up()
   if not decision then
      return nil, reason
   end
   local list, misfit = lowering.plan(set, ask, decision)
   if not list then
      return nil, misfit
   end
   return list, decision.message
end

local function lower(fields, offset, slurm)
   local kind = fields.type
   local reason = why_not(kind, offset, site)
   if reason then
      return nil, reason
   end
   local list, message = consult(fields, slurm, kind)
   if not list then
      return nil, message
   end
   local applied, failure = lowering.apply(list, fields)
   if not applied then
      return nil, failure
   end
   if message then
      pcall(slurm.log_info, "%s", message)
   end
   return true
end

--- For slurm_cli_pre_submit. Returns true if the service's answer was carried out (it may be «change
-- nothing»); else nil and a reason, with the options as they were.
function filter.submit(fields, offset)
   local slurm = rawget(_G, "slurm") or {}
   local completed, done, reason = pcall(lower, fields, offset, slurm)
   if not completed then
      done, reason = nil, "internal_error"
   end
   if not done then
      pcall(slurm.log_debug, "%s", "rightsizer: left as it was asked for: " .. tostring(reason))
   end
   return done, reason
end

return filter
