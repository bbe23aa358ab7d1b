--- Finds for how many tasks the client computed `min_cpus`, which is what Slurm allocates by.
-- num_tasks is not set with -N alone (one task per node: `-N 2 -c 4` has min_cpus 8), from 24.11 with
-- --ntasks-per-node and no -N either, and on all releases with a range of nodes (`-N 1-2 --ntasks-per-node=2
-- -c 2` has min_cpus 2: the client does not multiply then).
local numbers = require("rightsizer.numbers")

local tasks = {}

--- Returns the number of tasks; nil if min_cpus fits none of these cases, as with --overcommit or
-- --cpus-per-gpu. If min_cpus is not set, returns the number that the client would have used.
function tasks.counted(fields)
   local cpus_per_task = numbers.narrow(fields.cpus_per_task) or 1
   local min_cpus = numbers.wide(fields.min_cpus)
   local asked = numbers.at_least_one(numbers.wide(fields.num_tasks))
   local nodes = numbers.at_least_one(numbers.wide(fields.min_nodes)) or 1
   local all = asked or nodes * (numbers.at_least_one(numbers.narrow(fields.ntasks_per_node)) or 1)
   if not min_cpus or min_cpus == all * cpus_per_task then
      return all
   end
   return not asked and min_cpus == nodes * cpus_per_task and nodes or nil
end

return tasks
