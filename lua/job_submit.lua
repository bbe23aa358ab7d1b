--- The script that slurmctld's job_submit/lua plugin loads. Copy it next to slurm.conf, or link it there.
-- The folder `rightsizer` belongs next to it, and so does the file `rightsizer_site.lua`, which
-- `rightsizer config hook` writes:
--
--    return {
--       socket = "/run/rightsizer/rightsizer.sock",
--       deadline_ms = 25,
--       kill_switch = "/var/lib/rightsizer/disabled",
--    }
--
-- Links work too. If they are not there, package.path is searched. A site that has its own job_submit.lua
-- keeps it, names the folder that holds both once at the top,
--
--    package.path = "/etc/slurm/?.lua;" .. package.path
--
-- and calls the hook from its slurm_job_submit, after its own rules and before it returns slurm.SUCCESS:
--
--    pcall(function() require("rightsizer.hook").submit(job_desc, part_list, submit_uid) end)
--
-- `submit` returns true, or nil and a reason. It never raises an error, and leaves the job alone if anything
-- is wrong. But `require` raises one if a module is missing or only half copied, and 26.05 then rejects the
-- job: hence the pcall. The settings come from `rightsizer_site.lua` on package.path, or from
-- `require("rightsizer.hook").configure{ socket = … }`.
--
-- This file rejects no job. It loads even if everything else is missing: slurmctld does not start with a
-- broken script.

local SUCCESS = slurm and slurm.SUCCESS or 0

local function own_folder()
   return debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or "."
end

local function is_readable(path)
   local file = io.open(path, "r")
   if file then
      file:close()
   end
   return file ~= nil
end

local function load_hook()
   local folder = own_folder()
   if is_readable(folder .. "/rightsizer/hook.lua") then
      package.path = folder .. "/?.lua;" .. package.path
   end
   local found, settings = pcall(require, "rightsizer.settings")
   if not found then
      error("no folder `rightsizer` next to " .. folder .. "/job_submit.lua nor on package.path", 0)
   end
   local site, message = settings.load(folder)
   if not site then
      error(message, 0)
   end
   local hook = require("rightsizer.hook")
   hook.configure(site)
   return hook
end

local loaded, hook = pcall(load_hook)
if not loaded then
   pcall(function()
      slurm.log_error("%s", "rightsizer: every job passes unchanged: " .. tostring(hook):match("[^\n]*"))
   end)
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   if loaded then
      pcall(hook.submit, job_desc, part_list, submit_uid)
   end
   return SUCCESS
end

--- slurmctld calls this for every `scontrol update`, once per array record, under write locks: do nothing.
function slurm_job_modify(_job_desc, _job_rec, _part_list, _modify_uid)
   return SUCCESS
end
