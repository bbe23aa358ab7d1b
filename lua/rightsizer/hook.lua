--- One submission: read the job, ask the service, check the reply, write.
-- It never raises an error and never rejects a job. If anything goes wrong, the job stays as it was, and one
-- line is logged (none while the breaker is open or the kill switch thrown). A job whose grant does not fit
-- still gets the decision's token.
local breaker = require("rightsizer.breaker")
local client = require("rightsizer.client")
local job_desc = require("rightsizer.job_desc")
local json = require("rightsizer.json")
local plan = require("rightsizer.plan")
local service = require("rightsizer.service")
local settings = require("rightsizer.settings")
local writes = require("rightsizer.writes")

local hook = {}

--- Slurm gives Lua a new table of all jobs up to once a second, and the old table becomes garbage. With Lua's
-- default, which collects when the heap has doubled, nearly every new table costs a run of the collector,
-- under slurmctld's locks; at three times the size only every other one does. A fast run also costs less in
-- all: a slow run has to examine every table that is added while it lasts (docs/large-queues.md).
pcall(collectgarbage, "setpause", 300)
pcall(collectgarbage, "setstepmul", 1000)

local site

--- Uses these settings from now on. Returns true, or nil and a message. A site's own job_submit.lua may call
-- it.
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

--- Returns a decision and what the job asked for, or nil and a reason.
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

--- Logs only texts of this project, never those of users or of the service.
local function log(text)
   local slurm = rawget(_G, "slurm") or {}
   pcall(slurm.log_info, "%s", "rightsizer: " .. text)
end

local function announce(is_open)
   log(is_open and "the service fails: jobs pass as they were submitted, it is tried again every 30 s"
      or "the service answers again")
end

local guarded_consult = breaker.around(consult, client.now_s, { request_too_long = true }, announce)

--- Returns true, or nil and the reason why nothing was changed.
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
      -- The service counts the decision as applied: only the token says that it was not.
      writes.apply(plan.refusal(fields, ask, decision, refusal), fields)
      return nil, refusal
   end
   if decision.message then
      -- The job has been written by now: failing to show a message must not look like failing to size the
      -- job.
      pcall(slurm.log_user, "%s", decision.message)
   end
   return true
end

--- Reasons that have been logged once already, or that an admin chose.
local QUIET = { kill_switch = true, breaker_open = true }

--- For slurm_job_submit. Returns true if the service's answer was carried out (it may be «change nothing»);
-- else nil and a reason, with the job as it was. The submitting user's uid is not needed.
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
