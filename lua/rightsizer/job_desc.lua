--- Reads what a job asks for from Slurm's job description. It changes nothing.
-- Any table with Slurm's field names will do, so tests can use a plain one.
local forms = require("rightsizer.forms")
local gpus = require("rightsizer.gpus")
local numbers = require("rightsizer.numbers")
local given = require("rightsizer.text").given
local tres = require("rightsizer.tres")
local users = require("rightsizer.users")

local job_desc = {}

local NO_VAL = 0xfffffffe
local MAX_FOLDER_BYTES = 1024
local STRINGS = { "account", "partition", "qos", "name", "comment", "script" }
--- What Slurm uses if the user names none: rules and limits apply to it all the same.
local DEFAULTS = { account = "default_account", qos = "default_qos" }

local at_least_one, narrow, wide = numbers.at_least_one, numbers.narrow, numbers.wide

--- Reads memory of any kind; Slurm shows only the kind that the user used. Zero means all of the node's
-- memory.
local function read_memory(fields, ask, names)
   local per_node, per_cpu, per_gpu = fields.min_mem_per_node, fields.min_mem_per_cpu, fields.mem_per_tres
   local node_mib, cpu_mib = wide(per_node), wide(per_cpu)
   ask.mem_per_node_mib, ask.mem_per_cpu_mib = at_least_one(node_mib), at_least_one(cpu_mib)
   names.mem_all = (node_mib == 0 or cpu_mib == 0) or nil
   names.mem_unreadable = (per_node ~= nil and not node_mib) or (per_cpu ~= nil and not cpu_mib) or nil
   if given(per_gpu) then
      local is_alone = per_node == nil and per_cpu == nil
      ask.mem_per_gpu_mib = is_alone and tres.memory_per_gpu(per_gpu) or nil
      names.mem_per_tres = not ask.mem_per_gpu_mib or nil
   end
end

--- Returns the fields that count tasks too, since reading a field is expensive.
local function read_sizes(fields, ask)
   local sizes = {
      num_tasks = fields.num_tasks, cpus_per_task = fields.cpus_per_task, min_cpus = fields.min_cpus,
      ntasks_per_node = fields.ntasks_per_node, min_nodes = fields.min_nodes,
   }
   ask.num_tasks = at_least_one(wide(sizes.num_tasks))
   ask.cpus_per_task = at_least_one(narrow(sizes.cpus_per_task))
   ask.min_cpus = at_least_one(wide(sizes.min_cpus))
   ask.ntasks_per_node = at_least_one(narrow(sizes.ntasks_per_node))
   ask.nodes_min = at_least_one(wide(sizes.min_nodes))
   ask.nodes_max = at_least_one(wide(fields.max_nodes))
   ask.time_limit_min = wide(fields.time_limit)
   return sizes
end

--- GPUs of the whole job may be too few for the nodes that a constraint gives it, which nothing else shows.
local function read_constraints(fields, ask, names)
   if ask.gpus_per_job and not ask.nodes_max then
      names.counted_features = forms.counts_nodes(fields.features) or forms.counts_nodes(fields.prefer)
   end
end

local function read_texts(fields, ask)
   for _, name in ipairs(STRINGS) do
      local value = fields[name]
      ask[name] = type(value) == "string" and value or nil
   end
   for name, default in pairs(DEFAULTS) do
      ask[name] = given(ask[name]) or given(fields[default])
   end
   ask.array = given(fields.array_inx) and true
   local uid = wide(fields.user_id)
   ask.uid = uid or NO_VAL
   ask.user = users.name(fields, uid) or string.format("%d", ask.uid)
end

--- A job that names a reservation and no partition runs in the reservation's, if it has one, and not in the
-- default one. Which of several reservations it will run in, only Slurm knows.
local function read_reservation(fields, slurm, ask, names)
   local name = not given(ask.partition) and given(fields.reservation)
   if name then
      local reservation = slurm.reservations and slurm.reservations[name]
      ask.partition = reservation and given(reservation.partition) or nil
      names.reserved_partition = not reservation or nil
   end
end

--- Whether an srun in the job will be bound to CPUs by their numbers. It obeys this variable, which sbatch
-- passes on from the step in which it is typed, such as a session of `srun --pty`. With fewer CPUs, the job
-- may lack some of those, and Slurm then refuses the srun.
local function is_bound_by_number(fields)
   local environment = fields.environment
   local binding = given(environment and environment.SLURM_CPU_BIND) or ""
   return binding:find("map_", 1, true) ~= nil or binding:find("mask_", 1, true) ~= nil
end

--- Returns the job's working directory; nil if it has none, or one longer than the wire takes (a cut path
-- would name another directory).
function job_desc.work_dir(fields)
   local folder = given(fields.work_dir)
   return folder and #folder <= MAX_FOLDER_BYTES and folder or nil
end

--- Returns the `job` object of a request. Its texts are as long and as odd as users made them.
function job_desc.read(fields, slurm)
   local ask, names = gpus.read(fields)
   read_memory(fields, ask, names)
   local sizes = read_sizes(fields, ask)
   read_constraints(fields, ask, names)
   read_texts(fields, ask)
   read_reservation(fields, slurm, ask, names)
   ask.batch = ask.script ~= nil
   names.cpu_bind = ask.batch and ask.cpus_per_task and is_bound_by_number(fields) or nil
   ask.other = forms.names(fields, slurm, names, sizes)
   return ask
end

return job_desc
