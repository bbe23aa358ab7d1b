--- Checks whether fewer CPUs still carry the memory per node that a job asks for, if a partition limits
-- memory per CPU. If they do not, Slurm raises the CPUs again by itself: nothing is saved, and on 26.05 the
-- job's environment then contradicts itself, so that an srun inside it aborts. Lua sees the limits of
-- partitions, not the cluster's.
local limits = {}

local function carries(partition, memory_mib, cpus_per_node)
   local limit_mib = partition.max_mem_per_cpu
   return type(limit_mib) ~= "number" or limit_mib <= 0 or memory_mib <= limit_mib * cpus_per_node
end

--- Whether `memory_mib` fits `cpus_per_node` in every partition of the list `names` (nil: the default one).
function limits.allow(partitions, names, memory_mib, cpus_per_node)
   for name, partition in pairs(partitions or {}) do
      local is_named = names and ("," .. names .. ","):find("," .. name .. ",", 1, true)
      local is_default = not names and partition.flag_default == 1
      if (is_named or is_default) and not carries(partition, memory_mib, cpus_per_node) then
         return false
      end
   end
   return true
end

return limits
