--- What the cli_filter/lua plugin loads into every srun, salloc and sbatch: copy or link it next to
-- slurm.conf, on every host with Slurm's commands, compute nodes included: a client that does not find it
-- exits.
--
-- Next to it belong the folder `rightsizer` and the file `rightsizer_clients.lua`, which every user must be
-- able to read (`rightsizer config clients` writes it). A site that has a cli_filter.lua of its own keeps
-- it, names the two folders once at its top,
--
--    package.path = "/usr/local/share/slurm-rightsizer/lua/?.lua;/etc/slurm/?.lua;" .. package.path
--
-- and calls from its slurm_cli_pre_submit, after its own rules and before it returns slurm.SUCCESS:
--
--    pcall(function()
--       local filter = require("rightsizer.filter")
--       filter.load_settings(nil)
--       filter.submit(options, pack_offset)
--    end)
--
-- This file loads nothing before it is needed, prints nothing where anything is wrong, and refuses no job.

local SUCCESS = 0
local SIZED = { srun = true, salloc = true }

local function own_folder()
   return debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or "."
end

local folder = own_folder()

--- Without the places that depend on where a user stands: somebody else may have left a module there.
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

--- The plugin wants all three functions: without one of them no client starts.
function slurm_cli_setup_defaults(_options, _early_pass)
   return SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
   pcall(submit, options, pack_offset)
   return SUCCESS
end

--- The job's id comes too late (for srun once it runs) and from the client: nothing rests on it.
function slurm_cli_post_submit(_offset, _job_id, _step_id)
   return SUCCESS
end
