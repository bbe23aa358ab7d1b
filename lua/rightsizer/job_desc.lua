--- Slurm's job description: what a job asks for, and the writes that make it ask for less.
-- `read` and `plan` change nothing; `apply` writes all or nothing. A field that is not set is never written.
-- Every function takes any table with Slurm's field names, so that a plain table serves in tests.
local forms = require("rightsizer.forms")
local tres = require("rightsizer.tres")

local job_desc = {}

local NO_VAL16 = 0xfffe
local NO_VAL = 0xfffffffe
local STRINGS = { "account", "partition", "qos", "name", "comment", "script" }

local function whole_number_below(value, sentinel)
   if type(value) ~= "number" or value < 0 or value >= sentinel or value ~= math.floor(value) then
      return nil
   end
   return value
end

--- Readers of numeric fields: nil when the field holds its sentinel (INFINITE lies above it) or no number.
local function number_readers(slurm)
   local narrow, wide = slurm.NO_VAL16 or NO_VAL16, slurm.NO_VAL or NO_VAL
   return {
      narrow = function(value)
         return whole_number_below(value, narrow)
      end,
      wide = function(value)
         return whole_number_below(value, wide)
      end,
   }
end

local function at_least_one(value)
   return value and value >= 1 and value or nil
end

--- Memory of either kind; Slurm shows only the kind that the user used. Zero means all of the node's.
local function memory(fields, numbers)
   local per_node, per_cpu = fields.min_mem_per_node, fields.min_mem_per_cpu
   local sizes = { mem_per_node = numbers.wide(per_node), mem_per_cpu = numbers.wide(per_cpu) }
   sizes.mem_unreadable = (per_node ~= nil and not sizes.mem_per_node)
      or (per_cpu ~= nil and not sizes.mem_per_cpu) or nil
   return sizes
end

local function who(fields, numbers)
   local uid = numbers.wide(fields.user_id) or NO_VAL
   local user = fields.user_name
   if type(user) ~= "string" or user == "" then
      user = string.format("%d", uid)
   end
   return user, uid
end

--- What the job asks for: the `job` object of a request, with text as long and as odd as users made it.
function job_desc.read(fields, slurm)
   local numbers = number_readers(slurm)
   local sizes = memory(fields, numbers)
   local user, uid = who(fields, numbers)
   local gres = fields.gres
   local ask = {
      user = user,
      uid = uid,
      batch = fields.script ~= nil,
      num_tasks = at_least_one(numbers.wide(fields.num_tasks)),
      cpus_per_task = at_least_one(numbers.narrow(fields.cpus_per_task)),
      min_cpus = at_least_one(numbers.wide(fields.min_cpus)),
      mem_per_node_mib = at_least_one(sizes.mem_per_node),
      mem_per_cpu_mib = at_least_one(sizes.mem_per_cpu),
      gpus_per_node = type(gres) == "string" and tres.plain_gpus(gres) or nil,
      time_limit_min = numbers.wide(fields.time_limit),
      other = forms.names(fields, slurm, numbers, sizes),
   }
   for _, name in ipairs(STRINGS) do
      local value = fields[name]
      ask[name] = type(value) == "string" and value or nil
   end
   return ask
end

local function add(writes, field, old, new)
   if old ~= new then
      writes[#writes + 1] = { field = field, old = old, new = new }
   end
end

local function add_environment(writes, name, old, new)
   if old ~= new then
      writes[#writes + 1] = { environment = true, field = name, old = old, new = new }
   end
end

local function environment_value(fields, name)
   local environment = fields.environment
   local value = environment and environment[name]
   return type(value) == "string" and value or nil
end

--- From 23.11 a per-task TRES repeats the CPUs; 23.11–25.05 clients abort when their environment disagrees.
local function plan_per_task(writes, fields, old, new)
   local places = {
      { add, "tres_per_task", fields.tres_per_task },
      { add_environment, "SLURM_TRES_PER_TASK", environment_value(fields, "SLURM_TRES_PER_TASK") },
   }
   for index = 1, 2 do
      local add_to, name, request = places[index][1], places[index][2], places[index][3]
      local cpus = request and tres.cpus(request)
      if cpus and cpus ~= old then
         return nil, "coupled_field"
      elseif cpus then
         add_to(writes, name, request, tres.with_cpus(request, new))
      end
   end
   return true
end

--- Slurm allocates by min_cpus: cpus_per_task alone changes nothing, so all that repeat it change together.
local function plan_cpus(writes, fields, ask, new, numbers)
   local old = ask.cpus_per_task
   local tasks = ask.num_tasks or 1
   local min_cpus = numbers.wide(fields.min_cpus)
   if min_cpus and min_cpus ~= tasks * old then
      return nil, "coupled_field"
   end
   add(writes, "cpus_per_task", old, new)
   if min_cpus then
      add(writes, "min_cpus", min_cpus, tasks * new)
   end
   if numbers.narrow(fields.pn_min_cpus) == old then
      add(writes, "pn_min_cpus", old, new)
   end
   if numbers.wide(fields.max_cpus) == tasks * old then
      add(writes, "max_cpus", tasks * old, tasks * new)
   end
   return plan_per_task(writes, fields, old, new)
end

--- `gpu:N` suits every release: Slurm itself adds the prefix it wants.
-- `--gpus-per-node` also exports SLURM_GPUS_PER_NODE, and an srun inside the job asks for what that says.
local function plan_gpus(writes, fields, new)
   local exported = environment_value(fields, "SLURM_GPUS_PER_NODE")
   local exported_count = exported and tres.plain_gpus("gpu:" .. exported)
   if exported and not exported_count then
      return nil, "coupled_field"
   end
   add(writes, "gres", fields.gres, string.format("gpu:%d", new))
   if exported_count and exported_count > new then
      add_environment(writes, "SLURM_GPUS_PER_NODE", exported, string.format("%d", new))
   end
   return true
end

--- Appended: Slurm's own tools and other plugins keep what they wrote there.
local function plan_token(writes, fields, token)
   local comment = fields.admin_comment
   local old = type(comment) == "string" and comment ~= "" and comment or nil
   add(writes, "admin_comment", old or "", old and old .. " " .. token or token)
end

local function plan_grant(writes, fields, ask, grant, numbers)
   if grant.cpus_per_task and grant.cpus_per_task ~= ask.cpus_per_task then
      local planned, reason = plan_cpus(writes, fields, ask, grant.cpus_per_task, numbers)
      if not planned then
         return nil, reason
      end
   end
   if grant.gpus_per_node and grant.gpus_per_node ~= ask.gpus_per_node then
      local planned, reason = plan_gpus(writes, fields, grant.gpus_per_node)
      if not planned then
         return nil, reason
      end
   end
   if grant.mem_per_node_mib then
      add(writes, "min_mem_per_node", ask.mem_per_node_mib, grant.mem_per_node_mib)
   end
   if grant.mem_per_cpu_mib then
      add(writes, "min_mem_per_cpu", ask.mem_per_cpu_mib, grant.mem_per_cpu_mib)
   end
   return true
end

--- The writes that a checked decision needs, each with the value to put back; nil and a reason when the
-- job's fields do not fit together as the decision assumes.
function job_desc.plan(fields, slurm, ask, decision)
   local writes = {}
   local planned, reason = plan_grant(writes, fields, ask, decision.grant, number_readers(slurm))
   if not planned then
      return nil, reason
   end
   if decision.token then
      plan_token(writes, fields, decision.token)
   end
   return writes
end

local function put(fields, write, value)
   if write.environment then
      fields.environment[write.field] = value
   else
      fields[write.field] = value
   end
end

local function put_back(fields, writes, last)
   local restored = true
   for index = last, 1, -1 do
      restored = pcall(put, fields, writes[index], writes[index].old) and restored
   end
   return restored
end

--- Writes all, or puts back what was written: true, or nil and a reason.
function job_desc.apply(fields, writes)
   for index, write in ipairs(writes) do
      if not pcall(put, fields, write, write.new) then
         return nil, put_back(fields, writes, index) and "write_failed" or "rollback_failed"
      end
   end
   return true
end

return job_desc
