--- Plans which fields have to change together so that a job gets what was granted; it writes nothing itself.
-- Variables that an srun inside the job reads from its environment count as such fields. If fields do not fit
-- together as expected, the answer is nil and `coupled_field`, and the job is left alone.
local gpus = require("rightsizer.gpus")
local limits = require("rightsizer.limits")
local numbers = require("rightsizer.numbers")
local tasks = require("rightsizer.tasks")
local given = require("rightsizer.text").given
local tres = require("rightsizer.tres")
local writes = require("rightsizer.writes")

local plan = {}

local MISFIT = "coupled_field"
--- The variable that `sbatch` exports for each way of asking, as `4` or `a100:4`: an srun inside the job asks
-- for that much.
local EXPORTED = {
   gpus_per_node = "SLURM_GPUS_PER_NODE",
   gpus_per_job = "SLURM_GPUS",
   gpus_per_task = "SLURM_GPUS_PER_TASK",
   mem_per_gpu_mib = "SLURM_MEM_PER_GPU",
}
--- An srun asks for GPUs by each of these. Variables other than the job's own are set if it was submitted
-- from inside a job that asked in another way.
local GPU_VARIABLES = { "SLURM_GPUS_PER_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_GRES" }

local function is_het_job(fields)
   return numbers.wide(fields.het_job_offset) ~= nil
end

--- Edits both places of a per-task request. From 23.11 it repeats the CPUs, from 24.05 it holds the GPUs.
-- Clients of 23.11–25.05 abort if the environment disagrees with it.
local function edit_per_task(list, fields, old, new, read, edit)
   local request = writes.value(list, fields, "tres_per_task")
   local exported = writes.variable(list, fields, "SLURM_TRES_PER_TASK")
   local in_field, in_environment = given(request) and read(request), exported and read(exported)
   if (in_field or old) ~= old or (in_environment or old) ~= old then
      return MISFIT
   end
   if in_field then
      writes.set(list, fields, "tres_per_task", edit(request, new))
   end
   if in_environment then
      writes.export(list, fields, "SLURM_TRES_PER_TASK", edit(exported, new))
   end
   return nil
end

--- Whether a job gets more CPUs than its tasks ask for (--exclusive, --mincpus). Fewer CPUs per task then
-- save none. And if the number of tasks is not set either, an inner srun of 24.11 and later starts one task
-- for each time that cpus_per_task fits: it would start more of them.
local function has_cpus_to_spare(fields, cpus_per_task)
   return numbers.narrow(fields.shared) == 0 or (numbers.narrow(fields.pn_min_cpus) or 0) > cpus_per_task
end

--- A user who submits this job from inside another may have exported this for an srun there; an srun in this
-- job obeys it too.
local function lower_cpus_export(list, fields, new)
   local digits = (writes.variable(list, fields, "SRUN_CPUS_PER_TASK") or ""):match("^%d+$")
   if digits and tonumber(digits) > new then
      writes.export(list, fields, "SRUN_CPUS_PER_TASK", string.format("%d", new))
   end
end

--- Slurm allocates by min_cpus: cpus_per_task alone changes nothing, so all fields that repeat it change
-- together.
local function plan_cpus(list, fields, ask, new)
   local old = ask.cpus_per_task
   local count = tasks.counted(fields)
   if not count or is_het_job(fields) or has_cpus_to_spare(fields, old) then
      return MISFIT
   end
   writes.set(list, fields, "cpus_per_task", new)
   if numbers.wide(fields.min_cpus) then
      writes.set(list, fields, "min_cpus", count * new)
   end
   if numbers.narrow(fields.pn_min_cpus) == old then
      writes.set(list, fields, "pn_min_cpus", new)
   end
   if numbers.wide(fields.max_cpus) == count * old then
      writes.set(list, fields, "max_cpus", count * new)
   end
   lower_cpus_export(list, fields, new)
   return edit_per_task(list, fields, old, new, tres.cpus, tres.with_cpus)
end

--- Refuses to change GPUs on whose number tasks, CPUs or nodes depend: --ntasks-per-gpu, --cpus-per-gpu, a
-- GPU per node.
local function check_gpus_stand_alone(fields, ask, dimension, new)
   local is_coupled = is_het_job(fields)
      or given(fields.cpus_per_tres)
      or numbers.narrow(fields.ntasks_per_tres) ~= nil
      or (dimension == "gpus_per_job" and (ask.nodes_min or 1) > new)
   return is_coupled and MISFIT or nil
end

local function gpus_of_a_task(request)
   local said = tres.per_task(request)
   return said and said.gpus or not said and 0 or nil
end

local function plan_request(list, fields, dimension, old, new)
   if dimension == "gpus_per_task" then
      return edit_per_task(list, fields, old, new, gpus_of_a_task, tres.with_gpus)
   end
   local field = gpus.FIELD[dimension]
   writes.set(list, fields, field, tres.with_gpus(fields[field], new))
   return nil
end

--- Edits the binding that clients from 24.05 derive from --gpus-per-task, in the field and the environment.
local function plan_binding(list, fields, dimension, old, new)
   local binding = fields.tres_bind
   if not given(binding) then
      return nil
   end
   local exported = writes.variable(list, fields, "SLURM_TRES_BIND") or binding
   if dimension ~= "gpus_per_task" or tres.bound_per_task(binding) ~= old or exported ~= binding then
      return MISFIT
   end
   local bound = tres.bind_per_task(binding, new)
   writes.set(list, fields, "tres_bind", bound)
   if writes.variable(list, fields, "SLURM_TRES_BIND") then
      writes.export(list, fields, "SLURM_TRES_BIND", bound)
   end
   return nil
end

--- Returns the value of a variable, and how many GPUs that is; not a number if it is not understood.
local function exported_gpus(list, fields, name)
   local exported = writes.variable(list, fields, name)
   local request = exported and (name == "SLURM_GRES" and exported or "gpu:" .. exported)
   return exported, request and not request:find(",", 1, true) and tres.gpus(request)
end

--- A variable that asks for more than the job now has would make an inner srun fail: it is lowered too.
local function lower_export(list, fields, name, new)
   local exported, count = exported_gpus(list, fields, name)
   if exported and not count then
      return MISFIT
   elseif count and count > new then
      writes.export(list, fields, name, tres.with_gpus("gpu:" .. exported, new):sub(#"gpu:" + 1))
   end
   return nil
end

--- How many GPUs of another kind of request the job now has is not known: a variable of such a kind may ask
-- for no more than one node or task has.
local function check_other_exports(list, fields, own, new)
   for _, name in ipairs(GPU_VARIABLES) do
      local exported, count = exported_gpus(list, fields, name)
      if exported and name ~= own and not (count and count <= new) then
         return MISFIT
      end
   end
   return nil
end

local function plan_gpus(dimension)
   return function(list, fields, ask, new)
      local old = ask[dimension]
      return check_gpus_stand_alone(fields, ask, dimension, new)
         or plan_request(list, fields, dimension, old, new)
         or plan_binding(list, fields, dimension, old, new)
         or check_other_exports(list, fields, EXPORTED[dimension], new)
         or lower_export(list, fields, EXPORTED[dimension], new)
   end
end

local function plan_memory_per_gpu(list, fields, _ask, new)
   if is_het_job(fields) then
      return MISFIT
   end
   writes.set(list, fields, "mem_per_tres", tres.with_gpus(fields.mem_per_tres, new))
   return lower_export(list, fields, EXPORTED.mem_per_gpu_mib, new)
end

local function plan_field(field)
   return function(list, fields, _ask, new)
      writes.set(list, fields, field, new)
      return nil
   end
end

--- In this order, so that the same grant is always written the same way. Each step plans its writes and
-- returns nil, or the reason why it cannot.
local STEPS = {
   { "cpus_per_task", plan_cpus },
   { "gpus_per_node", plan_gpus("gpus_per_node") },
   { "gpus_per_job", plan_gpus("gpus_per_job") },
   { "gpus_per_task", plan_gpus("gpus_per_task") },
   { "mem_per_node_mib", plan_field("min_mem_per_node") },
   { "mem_per_cpu_mib", plan_field("min_mem_per_cpu") },
   { "mem_per_gpu_mib", plan_memory_per_gpu },
}

--- Appends the token: Slurm's own tools and other plugins keep what they wrote there.
local function plan_token(list, fields, token)
   local comment = fields.admin_comment
   local old = given(comment) and comment .. " " or ""
   writes.set(list, fields, "admin_comment", old .. token)
end

--- Removes the word by which a direct srun names the decision that its client carried out (cli_filter.lua):
-- the token records it now, and the comment is the user's again.
local function plan_comment(list, fields)
   local comment = fields.comment
   local rest = given(comment) and comment:match("^(.-) ?rightsizer%-cli=%x+$")
   if rest then
      writes.set(list, fields, "comment", rest)
   end
end

--- Returns the writes for a decision that is not carried out: the token says why, and names as `would` what
-- was granted.
function plan.refusal(fields, ask, decision, reason)
   local list = {}
   if decision.token then
      local token = decision.token:gsub(";granted=", ";would=", 1)
      plan_token(list, fields, token .. ";refused=" .. reason)
   end
   if not ask.batch then
      plan_comment(list, fields)
   end
   return list
end

--- Whether the partitions allow the remaining memory on the remaining CPUs. The job's own list of partitions
-- is complete; that in `ask` is cut to what goes over the wire.
local function fits_partitions(partitions, fields, ask, grant)
   local memory_mib = grant.mem_per_node_mib or ask.mem_per_node_mib
   if not grant.cpus_per_task or grant.cpus_per_task == ask.cpus_per_task or not memory_mib then
      return true
   end
   local cpus_per_node = grant.cpus_per_task * (ask.ntasks_per_node or 1)
   return limits.allow(partitions, fields.partition or ask.partition, memory_mib, cpus_per_node)
end

--- Returns the writes for a checked decision, each with the value to put back; nil and a reason if the job's
-- fields do not fit together as the decision assumes. `partitions` are Slurm's, by name.
function plan.writes(fields, ask, decision, partitions)
   if not fits_partitions(partitions, fields, ask, decision.grant) then
      return nil, "memory_per_cpu_limit"
   end
   local list = {}
   for _, step in ipairs(STEPS) do
      local dimension, plan_step = step[1], step[2]
      local granted = decision.grant[dimension]
      if granted and granted ~= ask[dimension] then
         local misfit = plan_step(list, fields, ask, granted)
         if misfit then
            return nil, misfit
         end
      end
   end
   if decision.token then
      plan_token(list, fields, decision.token)
      if not ask.batch then
         plan_comment(list, fields)
      end
   end
   return list
end

return plan
