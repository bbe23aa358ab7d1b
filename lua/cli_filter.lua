--- The script that the cli_filter/lua plugin loads into every srun, salloc and sbatch. Copy it next to
-- slurm.conf, or link it there, on every host with Slurm's commands, compute nodes included: a client that
-- does not find it exits.
--
-- The folder `rightsizer` and the file `rightsizer_clients.lua` belong next to it; every user must be able to
-- read that file (`rightsizer config clients` writes it). A site that has its own cli_filter.lua keeps it,
-- names the folder that holds both once at the top,
--
--    package.path = "/etc/slurm/?.lua;" .. package.path
--
-- and calls the filter from its slurm_cli_pre_submit, after its own rules and before it returns
-- slurm.SUCCESS:
--
--    pcall(function()
--       local filter = require("rightsizer.filter")
--       filter.load_settings(nil)
--       filter.submit(options, pack_offset)
--    end)
--
-- This file loads nothing before it is needed, prints nothing if anything is wrong, and rejects no job.

local SUCCESS = 0
local SIZED = { srun = true, salloc = true }

local function own_folder()
   return debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or "."
end

local folder = own_folder()

--- Drops relative places from a search path: somebody else may have left a module in the current directory.
local function absolute(path)
   local kept = {}
   for place in path:gmatch("[^;]+") do
      kept[#kept + 1] = place:sub(1, 1) == "/" and place or nil
   end
   return table.concat(kept, ";")
end

local function submit(options, pack_offset)
   if os.getenv("SLURM_JOB_ID") or not SIZED[options.type] then
      return
   end
   package.path = folder .. "/?.lua;" .. absolute(package.path)
   package.cpath = absolute(package.cpath)
   local filter = require("rightsizer.filter")
   filter.load_settings(folder)
   filter.submit(options, pack_offset)
end

--- The plugin requires all three functions: without any one of them no client starts.
function slurm_cli_setup_defaults(_options, _early_pass)
   return SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
   pcall(submit, options, pack_offset)
   return SUCCESS
end

--- The job id arrives too late (for srun, only once the job runs) and comes from the client: it is not used.
function slurm_cli_post_submit(_offset, _job_id, _step_id)
   return SUCCESS
end
