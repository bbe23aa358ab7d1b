--- One submission: read the job, ask the service, check the reply, write.
-- It never raises and never rejects: whatever goes wrong leaves the job as it was, and one log line (none
-- while the breaker is open); a job whose grant does not fit it gets the decision's token all the same.
local breaker = require("rightsizer.breaker")
local client = require("rightsizer.client")
local job_desc = require("rightsizer.job_desc")
local json = require("rightsizer.json")
local plan = require("rightsizer.plan")
local service = require("rightsizer.service")
local settings = require("rightsizer.settings")
local writes = require("rightsizer.writes")

local hook = {}

--- Slurm gives Lua a new table of all jobs up to once a second, and the old one is garbage. Collected when
-- the heap has doubled (Lua's default), nearly each of them costs a run of the collector, under slurmctld's
-- locks; at three times its size every other one does. And a run that is quick takes less in all: while a
-- slow one lasts, tables are added of which it has to look at each (docs/large-queues.md).
pcall(collectgarbage, "setpause", 300)
pcall(collectgarbage, "setstepmul", 1000)

local site

--- Uses these settings from now on: true, or nil and a message. A site's own job_submit.lua may call it.
function hook.configure(values)
   local checked, message = settings.checked(values)
   site = checked
   return checked ~= nil or nil, message
end

local function current_site()
   if not site then
      site = settings.load(nil)
   end
   return site
end

--- The switch counts as thrown as soon as its file can be opened.
local function is_switched_off(path)
   local file = path and io.open(path, "r")
   if not file then
      return false
   end
   file:close()
   return true
end

--- A decision and what the job asked for, or nil and a reason.
local function consult(share, fields, slurm, to, partitions)
   local codec, no_codec = json.codec()
   if not codec then
      return nil, no_codec
   end
   local ask = job_desc.read(fields, slurm)
   ask.work_dir = to.inputs and job_desc.work_dir(fields) or nil
   local function rehearse(decision)
      plan.writes(fields, ask, decision, partitions)
   end
   local decision, reason = service.ask(codec, ask, to.socket, to.deadline_ms * share, nil, rehearse)
   return decision, decision and ask or reason
end

--- Only our own words reach the log: what users and services wrote stays out of it.
local function log(text)
   local slurm = rawget(_G, "slurm") or {}
   pcall(slurm.log_info, "%s", "rightsizer: " .. text)
end

local function announce(is_open)
   log(is_open and "the service fails: jobs pass as they were submitted, it is tried again every 30 s"
      or "the service answers again")
end

local guarded_consult = breaker.around(consult, client.now_s, { request_too_long = true }, announce)

--- True, or nil and the reason why nothing was changed.
local function carry_out(fields, ask, decision, partitions)
   local list, misfit = plan.writes(fields, ask, decision, partitions)
   if not list then
      return nil, misfit
   end
   return writes.apply(list, fields)
end

local function resize(fields, slurm, partitions)
   local to = current_site()
   if not to then
      return nil, "no_settings"
   elseif is_switched_off(to.kill_switch) then
      return nil, "kill_switch"
   end
   local decision, ask = guarded_consult(fields, slurm, to, partitions)
   if not decision then
      return nil, ask
   end
   local applied, refusal = carry_out(fields, ask, decision, partitions)
   if not applied then
      -- The service counts the decision as applied: the token is all that says otherwise.
      writes.apply(plan.refusal(fields, ask, decision, refusal), fields)
      return nil, refusal
   end
   if decision.message then
      -- The job is written by now: a message that cannot be shown must not look like a failure.
      pcall(slurm.log_user, "%s", decision.message)
   end
   return true
end

--- Reasons that the log has been told once, or that an admin chose.
local QUIET = { kill_switch = true, breaker_open = true }

--- For slurm_job_submit: true when the service's answer was carried out (it may be «change nothing»),
-- else nil and a reason, the job being as it was. The submitting user is not needed.
function hook.submit(fields, part_list, _submit_uid)
   local slurm = rawget(_G, "slurm") or {}
   local completed, done, reason = pcall(resize, fields, slurm, part_list)
   if not completed then
      done, reason = nil, "internal_error"
   end
   if not done and not QUIET[reason] then
      log("job left as it was submitted: " .. reason)
   end
   return done, reason
end

return hook
