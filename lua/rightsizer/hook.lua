--- One submission: read the job, ask the service, check the reply, write.
-- It never raises and never rejects: whatever goes wrong leaves the job as it was, and one log line.
local checks = require("rightsizer.checks")
local client = require("rightsizer.client")
local frame = require("rightsizer.frame")
local job_desc = require("rightsizer.job_desc")
local json = require("rightsizer.json")
local settings = require("rightsizer.settings")

local hook = {}

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

local function ask_service(codec, now_s, ask, to)
   local id = frame.new_id(now_s)
   local line, reason = frame.request(codec, id, ask)
   if not line then
      return nil, reason
   end
   local answer, failure = client.exchange(to.socket, line, to.deadline_ms)
   if not answer then
      return nil, failure
   end
   local decoded, reply = pcall(codec.decode, answer)
   if not decoded then
      return nil, "bad_json"
   end
   return checks.decision(reply, id, ask)
end

local function decide(ask, to)
   local codec, no_codec = json.codec()
   if not codec then
      return nil, no_codec
   end
   local now_s, no_clock = client.now_s()
   if not now_s then
      return nil, no_clock
   end
   return ask_service(codec, now_s, ask, to)
end

local function resize(fields, slurm)
   local to = current_site()
   if not to then
      return nil, "no_settings"
   elseif is_switched_off(to.kill_switch) then
      return nil, "kill_switch"
   end
   local ask = job_desc.read(fields, slurm)
   local decision, reason = decide(ask, to)
   if not decision then
      return nil, reason
   end
   local writes, misfit = job_desc.plan(fields, slurm, ask, decision)
   if not writes then
      return nil, misfit
   end
   local applied, failure = job_desc.apply(fields, writes)
   if not applied then
      return nil, failure
   end
   if decision.message then
      -- The job is written by now: a message that cannot be shown must not look like a failure.
      pcall(slurm.log_user, "%s", decision.message)
   end
   return true
end

--- Only our own words reach the log: what users and services wrote stays out of it.
local function log_unchanged(slurm, reason)
   if reason ~= "kill_switch" then
      pcall(slurm.log_info, "%s", "rightsizer: job left as it was submitted: " .. reason)
   end
end

--- For slurm_job_submit: true when the service's answer was carried out (it may be «change nothing»),
-- else nil and a reason, the job being as it was. The partitions and the submitting user are not needed.
function hook.submit(fields, _part_list, _submit_uid)
   local slurm = rawget(_G, "slurm") or {}
   local completed, done, reason = pcall(resize, fields, slurm)
   if not completed then
      done, reason = nil, "internal_error"
   end
   if not done then
      log_unchanged(slurm, reason)
   end
   return done, reason
end

return hook
