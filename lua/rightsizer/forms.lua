--- Names the ways of asking for CPUs, memory, GPUs or placement for which the wire has no field.
-- The service leaves such a job, or that dimension of it, as it is, and records the names as the reason. A
-- release that lacks a field reads it as nil, which counts as not set. Fields that only say where a job runs
-- (--nodelist and the like; --constraint, unless it counts nodes; --reservation next to --partition) keep
-- nothing and are not read: slurmctld compares a field's name with all names it knows, which takes up to two
-- microseconds a field if no job came for a while.
local numbers = require("rightsizer.numbers")
local tasks = require("rightsizer.tasks")
local given = require("rightsizer.text").given

local forms = {}

--- Numbers, by the width of the sentinel that means «not set».
local WIDE = { "max_cpus" }
--- Only 26.05 shows the last two of these, and only if they are set.
local NARROW = {
   "ntasks_per_socket", "ntasks_per_core", "ntasks_per_tres",
   "sockets_per_node", "cores_per_socket", "threads_per_core", "core_spec", "thread_spec",
}
--- Numbers that are 0 if nobody asked for them (a release may also use the sentinel).
local ZERO_IS_UNSET = { "ntasks_per_board", "boards_per_node", "sockets_per_board" }
local STRINGS = { "cpus_per_tres", "tres_freq" }
--- Bits of `bitflags`, each by the name under which Slurm gives Lua its value.
local FLAGS = {
   GRES_DISABLE_BIND = "gres_flags",
   GRES_ENFORCE_BIND = "gres_flags",
   SPREAD_JOB = "spread_job",
}
local SHARED = { [0] = "exclusive", [1] = "oversubscribe" }

local function add_numbers(found, fields)
   for _, name in ipairs(WIDE) do
      found[name] = numbers.wide(fields[name]) and true
   end
   for _, name in ipairs(NARROW) do
      found[name] = numbers.narrow(fields[name]) and true
   end
   for _, name in ipairs(ZERO_IS_UNSET) do
      found[name] = numbers.at_least_one(numbers.narrow(fields[name])) and true
   end
end

local function add_strings(found, fields)
   for _, name in ipairs(STRINGS) do
      found[name] = given(fields[name]) and true
   end
end

local function add_flags(found, fields, slurm)
   local bits = fields.bitflags
   if type(bits) ~= "number" then
      return
   end
   for constant, name in pairs(FLAGS) do
      local bit = slurm[constant]
      if type(bit) == "number" and bit > 0 and math.floor(bits / bit) % 2 == 1 then
         found[name] = true
      end
   end
end

--- Sizes that disagree with each other were set by another option: --mincpus, --overcommit, --cpus-per-gpu.
local function add_sizes(found, fields, sizes)
   local pn_min_cpus = numbers.narrow(fields.pn_min_cpus)
   found.min_cpus = not tasks.counted(sizes) or nil
   found.pn_min_cpus = pn_min_cpus and pn_min_cpus > (numbers.narrow(sizes.cpus_per_task) or 1) or nil
end

local function add_placement(found, fields)
   local shared = numbers.narrow(fields.shared)
   if shared then
      found[SHARED[shared] or "exclusive_user"] = true
   end
   -- 0 counts too. It marks cron jobs, which Slurm queues again unchanged however they fail, and siblings of
   -- a federated job, whose first token is lost (22.05 to 26.05): neither could be recovered. No field is
   -- known that tells such a sibling from the first component of a het job (22.05).
   found.het_job = numbers.wide(fields.het_job_offset) ~= nil or nil
end

--- Whether a constraint says how many nodes the job has: `[fast*2]`, `slow*1&fast*4`.
function forms.counts_nodes(constraint)
   return given(constraint) and constraint:find("%*%d") and true or nil
end

--- Returns the names in a set, sorted.
function forms.sorted_names(found)
   local names = {}
   for name in pairs(found) do
      names[#names + 1] = name
   end
   table.sort(names)
   return names
end

--- Returns all names, sorted, including those in the set `found` (of memory and GPUs, read elsewhere).
-- `sizes` are the fields that count tasks, read already.
function forms.names(fields, slurm, found, sizes)
   add_numbers(found, fields)
   add_placement(found, fields)
   add_strings(found, fields)
   add_flags(found, fields, slurm)
   add_sizes(found, fields, sizes)
   return forms.sorted_names(found)
end

return forms
