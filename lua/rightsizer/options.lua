--- Reads what a direct srun or salloc asks for from the options that its user set (on the command line or in
-- the environment). It changes nothing. Options are text, by their long names. An option that is in no table
-- here goes to the service by its name, and keeps the whole request.
local forms = require("rightsizer.forms")
local numbers = require("rightsizer.numbers")
local tres = require("rightsizer.tres")

local options = {}

local COUNTS = {
   ntasks = "num_tasks", ["cpus-per-task"] = "cpus_per_task", ["ntasks-per-node"] = "ntasks_per_node",
}
local TEXTS = {
   account = "account", partition = "partition", qos = "qos", comment = "comment", ["job-name"] = "name",
}
local MEMORY = {
   mem = "mem_per_node_mib", ["mem-per-cpu"] = "mem_per_cpu_mib", ["mem-per-gpu"] = "mem_per_gpu_mib",
}
--- By option: its name on the wire, and the name that keeps the GPUs as they are if it is not understood.
local GPUS = {
   gres = { "gpus_per_node", "gres" }, ["gpus-per-node"] = { "gpus_per_node", "gres" },
   gpus = { "gpus_per_job", "tres_per_job" }, ["gpus-per-task"] = { "gpus_per_task", "tres_per_task" },
}
--- Options that the table of forms knows by another name: that of the job's field in slurmctld.
local FORMS = {
   overcommit = "min_cpus", mincpus = "pn_min_cpus", hint = "threads_per_core", pty = "interactive",
   ["extra-node-info"] = "cores_per_socket", ["cpus-per-gpu"] = "cpus_per_tres",
   ["ntasks-per-gpu"] = "ntasks_per_tres", ["gpus-per-socket"] = "tres_per_socket",
   ["gpu-bind"] = "tres_bind", ["gpu-freq"] = "tres_freq", ["mem-bind"] = "cpu_bind",
   constraint = "features", nodelist = "req_nodes", exclude = "exc_nodes", switches = "req_switch",
   bb = "burst_buffer", bbf = "burst_buffer", segment = "segment_size",
}
--- Options that neither say how much is asked for, nor where.
local HARMLESS = {}
for name in ([[
   acctg-freq argv begin bell chdir comment container context cpu_bind deadline
   delay-boot dependency disable-status epilog error export get-user-env hold immediate input job-name
   kill-command kill-on-bad-exit label mail-type mail-user mcs-label mpi msg-timeout network nice no-bell
   no-kill no-shell oom-kill-step open-mode output preserve-env priority profile prolog propagate
   quiet quit-on-interrupt signal slurmd-debug task-epilog task-prolog threads time time-min tmp
   unbuffered verbose wait wait-all-nodes wckey x11
]]):gmatch("%S+") do
   HARMLESS[name] = true
end

--- Variables by which an srun asks, and which the job's programs and the sruns in it see too. They cannot be
-- changed from here: with less, they would say what was asked at first.
local EXPORTED = {
   "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SRUN_CPUS_PER_TASK",
   "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GRES",
}

local MIB_OF_UNIT = { [""] = 1, M = 1, G = 1024, T = 1048576 }

--- Returns a whole number in decimal digits, at least 1; nil for anything else.
local function count(value)
   return value:find("^%d+$") and #value <= 9 and numbers.at_least_one(tonumber(value)) or nil
end

--- Returns the MiB in `8000`, `8000M` or `8G`; 0 for `0`, which Slurm shows as `0?`; nil if it is not
-- readable.
function options.mib(value)
   if value == "0?" then
      return 0
   end
   local digits, unit = value:match("^(%d+)([MGT]?)$")
   return digits and #digits <= 9 and numbers.wide(tonumber(digits) * MIB_OF_UNIT[unit]) or nil
end

--- Returns a request for GPUs as a list of gres. Only `--gres` is one already; the others count only GPUs
-- (`4`, `a100:4`).
local function gpu_request(option, value)
   return option == "gres" and value or "gpu:" .. value:gsub(",", ",gpu:")
end

--- Returns the same option's value for fewer GPUs.
function options.with_gpus(option, value, gpus)
   local changed = tres.with_gpus(gpu_request(option, value), gpus)
   return option == "gres" and changed or changed:sub(#"gpu:" + 1)
end

--- Returns the option by which this dimension was asked for; nil if there is none.
function options.gpu_option(set, dimension)
   for option, known in pairs(GPUS) do
      if known[1] == dimension and set[option] then
         return option
      end
   end
   return nil
end

local function read_gpus(set, ask, names)
   local used = {}
   for option in pairs(GPUS) do
      if set[option] then
         used[#used + 1] = option
      end
   end
   for _, option in ipairs(used) do
      local gpus = #used == 1 and tres.gpus(gpu_request(option, set[option]))
      if gpus then
         ask[GPUS[option][1]] = gpus
      else
         names[GPUS[option][2]] = true
      end
   end
end

local function read_memory(set, ask, names)
   local kinds = 0
   for option, dimension in pairs(MEMORY) do
      local value = set[option]
      if value then
         local mib = options.mib(value)
         kinds = kinds + 1
         ask[dimension] = numbers.at_least_one(mib)
         names.mem_all = names.mem_all or mib == 0 or nil
         names.mem_unreadable = names.mem_unreadable or not mib or nil
      end
   end
   if kinds > 1 then
      ask.mem_per_node_mib, ask.mem_per_cpu_mib, ask.mem_per_gpu_mib = nil, nil, nil
      names.mem_unreadable = true
   end
end

--- Whether Slurm counts the job's nodes by a list of several, or by the file of hosts that stands for a list.
local function lists_nodes(set)
   if set.nodes then
      return false
   end
   local list = set.nodelist
   return list and list:find("[,%s%[/]") ~= nil or not list and os.getenv("SLURM_HOSTFILE") ~= nil
end

local function read_nodes(set, ask, names)
   local least, most = (set.nodes or ""):match("^(%d+)%-?(%d*)$")
   if least then
      ask.nodes_min = count(least)
      ask.nodes_max = count(most == "" and least or most)
   end
   names.node_range = (set.nodes and not ask.nodes_max or lists_nodes(set)) or nil
   if ask.gpus_per_job and not ask.nodes_max then
      names.counted_features = forms.counts_nodes(set.constraint) or forms.counts_nodes(set.prefer)
   end
end

--- Returns the minutes in Slurm's `[days-]hours:minutes:seconds`; nil for UNLIMITED and anything else.
local function minutes(value)
   local days, hours, mins = value:match("^(%d*)%-?(%d%d):(%d%d):%d%d$")
   return hours and (tonumber(days) or 0) * 1440 + tonumber(hours) * 60 + tonumber(mins) or nil
end

--- Returns the name that Slurm will give the job.
local function job_name(set, command)
   return set["job-name"] or (command[1] and command[1]:match("[^/]*$")) or nil
end

local function add_forms(set, names)
   for _, variable in ipairs(EXPORTED) do
      names.exported = names.exported or os.getenv(variable) ~= nil or nil
   end
   for option in pairs(set) do
      local is_read = COUNTS[option] or TEXTS[option] or MEMORY[option] or GPUS[option] or option == "nodes"
      if not (is_read or HARMLESS[option] or option:find("^spank:")) then
         names[FORMS[option] or option:gsub("[^%w]", "_")] = true
      end
   end
end

--- Returns those of `values` (by long name) that are text: the options that the user set.
function options.texts(values)
   local set = {}
   for name, value in pairs(values) do
      if type(value) == "string" then
         set[name] = value
      elseif name ~= "argv" then
         -- Set, but not readable: its name keeps the request.
         set[name] = ""
      end
   end
   return set
end

--- Returns the `job` object of a request. `set` comes from options.texts, `kind` is `srun` or `salloc`,
-- `command` holds the words of the command to run (empty if it cannot be seen). They stand for a script: they
-- distinguish one piece of work from another, and fix sizes in the same way.
function options.read(set, kind, command)
   local ask, names = { batch = false }, {}
   for option, name in pairs(COUNTS) do
      ask[name] = set[option] and count(set[option])
      names.min_cpus = names.min_cpus or (set[option] and not ask[name]) or nil
   end
   for option, name in pairs(TEXTS) do
      ask[name] = set[option] ~= "" and set[option] or nil
   end
   read_gpus(set, ask, names)
   read_memory(set, ask, names)
   read_nodes(set, ask, names)
   ask.time_limit_min = set.time and minutes(set.time)
   -- What somebody is going to type says nothing about what is needed; a job name marks it as known work.
   names.interactive = kind == "salloc" and not set["job-name"] or nil
   ask.name = kind == "salloc" and ask.name or job_name(set, command)
   ask.script = #command > 0 and table.concat(command, " ") or nil
   add_forms(set, names)
   ask.other = forms.sorted_names(names)
   return ask
end

return options
