--- Names the ways a job asks for CPUs, memory, GPUs or placement that the wire has no field for.
-- The service leaves such a job, or that dimension of it, as it is, and records the names as the reason.
-- A release that lacks a field reads it as nil, which counts as not set.
local tres = require("rightsizer.tres")

local forms = {}

--- Numbers, by the width of the sentinel that stands for «not set».
local WIDE = { "min_nodes", "max_nodes", "max_cpus", "req_switch" }
local NARROW = {
   "ntasks_per_node", "ntasks_per_socket", "ntasks_per_core", "ntasks_per_tres",
   "sockets_per_node", "cores_per_socket", "threads_per_core", "segment_size",
}
--- Numbers that are 0 where nobody asked (a release may also use the sentinel).
local ZERO_IS_UNSET = { "ntasks_per_board", "boards_per_node", "sockets_per_board", "contiguous" }
--- Only 26.05 shows these two, and then only when they are set.
local SPECIALISED = { "core_spec", "thread_spec" }
local STRINGS = {
   "cpus_per_tres", "mem_per_tres", "tres_per_job", "tres_per_socket", "tres_bind", "tres_freq",
   "req_nodes", "exc_nodes", "features", "prefer", "batch_features",
   "reservation", "licenses", "burst_buffer",
}
--- Bits of `bitflags`, each by the name under which Slurm gives its value to Lua.
local FLAGS = {
   GRES_DISABLE_BIND = "gres_flags",
   GRES_ENFORCE_BIND = "gres_flags",
   SPREAD_JOB = "spread_job",
   USE_MIN_NODES = "use_min_nodes",
}
local SHARED = { [0] = "exclusive", [1] = "oversubscribe" }

local function is_text(value)
   return type(value) == "string" and value ~= ""
end

local function add_numbers(found, fields, names, read)
   for _, name in ipairs(names) do
      if read(fields[name]) then
         found[name] = true
      end
   end
end

local function add_strings(found, fields)
   for _, name in ipairs(STRINGS) do
      if is_text(fields[name]) then
         found[name] = true
      end
   end
   found.array = is_text(fields.array_inx) or nil
   local gres = fields.gres
   found.gres = is_text(gres) and not tres.plain_gpus(gres) or nil
   local per_task = fields.tres_per_task
   if is_text(per_task) then
      local mirrors_cpus = tres.is_cpus_alone(per_task) and tres.cpus(per_task) == fields.cpus_per_task
      found.tres_per_task = not mirrors_cpus or nil
   end
end

local function add_flags(found, fields, slurm)
   local bits = fields.bitflags
   for constant, name in pairs(FLAGS) do
      local bit = slurm[constant]
      if type(bits) == "number" and type(bit) == "number" and bit > 0 and math.floor(bits / bit) % 2 == 1 then
         found[name] = true
      end
   end
end

--- Sizes that disagree with each other were set by something else: --mincpus, --overcommit, -N without -n.
local function add_sizes(found, fields, sizes, numbers)
   local cpus_per_task = numbers.narrow(fields.cpus_per_task) or 1
   local min_cpus = numbers.wide(fields.min_cpus)
   local tasks = numbers.wide(fields.num_tasks) or 1
   found.min_cpus = min_cpus and min_cpus ~= tasks * cpus_per_task or nil
   local pn_min_cpus = numbers.narrow(fields.pn_min_cpus)
   found.pn_min_cpus = pn_min_cpus and pn_min_cpus > cpus_per_task or nil
   found.mem_all = (sizes.mem_per_node == 0 or sizes.mem_per_cpu == 0) or nil
   found.mem_unreadable = sizes.mem_unreadable
end

local function sorted_names(found)
   local names = {}
   for name in pairs(found) do
      names[#names + 1] = name
   end
   table.sort(names)
   return names
end

--- The names, sorted. `numbers` reads a field of each width (nil when it is not set); `sizes` is the memory.
function forms.names(fields, slurm, numbers, sizes)
   local found = {}
   add_numbers(found, fields, WIDE, numbers.wide)
   add_numbers(found, fields, NARROW, numbers.narrow)
   add_numbers(found, fields, SPECIALISED, numbers.narrow)
   for _, name in ipairs(ZERO_IS_UNSET) do
      local value = numbers.narrow(fields[name])
      found[name] = value and value > 0 or nil
   end
   local shared = numbers.narrow(fields.shared)
   if shared then
      found[SHARED[shared] or "exclusive_user"] = true
   end
   found.het_job = numbers.wide(fields.het_job_offset) ~= nil or nil
   add_strings(found, fields)
   add_flags(found, fields, slurm)
   add_sizes(found, fields, sizes, numbers)
   return sorted_names(found)
end

return forms
