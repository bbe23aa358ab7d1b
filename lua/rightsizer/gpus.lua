--- Reads how a job asks for GPUs: per node, per job or per task, each in a field of its own.
-- Only the field that the user used may be edited: editing another would make the job ask in both. If two are
-- set, Slurm derives tasks and nodes from both, so such a job counts as not understood.
local given = require("rightsizer.text").given
local tres = require("rightsizer.tres")

local gpus = {}

--- The dimensions on the wire, and the fields where Slurm keeps them.
gpus.FIELD = { gpus_per_node = "gres", gpus_per_job = "tres_per_job", gpus_per_task = "tres_per_task" }

--- Returns the GPUs of a per-task request (nil if not understood), and whether it names only the CPUs.
local function read_per_task(request, cpus_per_task)
   local said = tres.per_task(request)
   if not said or (said.cpus and said.cpus ~= cpus_per_task) then
      return nil, false
   end
   return said.gpus, said.cpus ~= nil and not said.gpus
end

--- Returns the count by field; `false` if a field is set but not understood.
local function used_fields(fields)
   local used = {}
   for _, name in ipairs({ "gres", "tres_per_job" }) do
      local request = fields[name]
      if given(request) then
         used[name] = tres.gpus(request) or false
      end
   end
   if given(fields.tres_per_socket) then
      used.tres_per_socket = false
   end
   local per_task = fields.tres_per_task
   if given(per_task) then
      local count, cpus_alone = read_per_task(per_task, fields.cpus_per_task)
      if not cpus_alone then
         used.tres_per_task = count or false
      end
   end
   return used
end

--- Returns what is asked (a table by dimension, with one entry at most), and the set of fields that are not
-- understood.
function gpus.read(fields)
   local used, asked, names = used_fields(fields), {}, {}
   local first = next(used)
   local is_alone = first and next(used, first) == nil
   for field, count in pairs(used) do
      names[field] = not (is_alone and count) or nil
   end
   for dimension, field in pairs(gpus.FIELD) do
      asked[dimension] = is_alone and used[field] or nil
   end
   local binding = fields.tres_bind
   if given(binding) then
      local bound = tres.bound_per_task(binding)
      names.tres_bind = not (bound and bound == asked.gpus_per_task) or nil
   end
   return asked, names
end

return gpus
