--- A stand-in for what slurmctld gives its Lua script: the table `slurm`, and job descriptions that
-- behave as Slurm's do (unset strings read nil, writing nil raises, an unknown field cannot be written).
local fake_slurm = {}

local WRITABLE_NUMBERS = {
   cpus_per_task = true, min_cpus = true, max_cpus = true, pn_min_cpus = true,
   min_mem_per_node = true, min_mem_per_cpu = true,
}
local WRITABLE_STRINGS = {
   gres = true, tres_per_job = true, tres_per_task = true, tres_bind = true, mem_per_tres = true,
   admin_comment = true, comment = true,
}

--- A new `slurm` table; what is logged and shown is collected in `lines` and `shown`.
function fake_slurm.new()
   local slurm = {
      SUCCESS = 0, ERROR = -1,
      NO_VAL16 = 0xfffe, NO_VAL = 0xfffffffe, NO_VAL64 = 18446744073709551614,
      GRES_DISABLE_BIND = 8, GRES_ENFORCE_BIND = 16, SPREAD_JOB = 256, USE_MIN_NODES = 512,
      reservations = { upkeep = { partition = "gpu" }, week = {} },
      lines = {}, shown = {},
   }
   function slurm.log_info(...)
      slurm.lines[#slurm.lines + 1] = string.format(...)
   end
   slurm.log_error = slurm.log_info
   function slurm.log_user(...)
      slurm.shown[#slurm.shown + 1] = string.format(...)
   end
   return slurm
end

local function copy(values)
   local result = {}
   for key, value in pairs(values) do
      result[key] = type(value) == "table" and copy(value) or value
   end
   return result
end

local function environment_of(values)
   return setmetatable({}, {
      __index = function(_, name)
         return values.environment and values.environment[name]
      end,
      __newindex = function(_, name, value)
         assert(type(value) == "string", "string expected")
         values.environment = values.environment or {}
         values.environment[name] = value
      end,
   })
end

--- A job description over a copy of `fields`: the description, and the table that holds its values.
-- `before_write(field, value)` may raise, as a failing Slurm would.
function fake_slurm.job_desc(fields, before_write)
   local values = copy(fields)
   local environment = environment_of(values)
   local proxy = setmetatable({}, {
      __index = function(_, name)
         if name == "environment" then
            return environment
         end
         return values[name]
      end,
      __newindex = function(_, name, value)
         assert(type(value) == (WRITABLE_NUMBERS[name] and "number" or "string"), "wrong type for " .. name)
         assert(WRITABLE_NUMBERS[name] or WRITABLE_STRINGS[name], "not a field: " .. name)
         if before_write then
            before_write(name, value)
         end
         values[name] = value ~= "" and value or nil
      end,
   })
   return proxy, values
end

--- The fields in which two sets of values differ, with the second set's value (false if it has none).
function fake_slurm.differences(before, after)
   local changed = {}
   for name in pairs(before) do
      changed[name] = true
   end
   for name in pairs(after) do
      changed[name] = true
   end
   for name in pairs(changed) do
      local old, new = before[name], after[name]
      if type(old) == "table" and type(new) == "table" then
         local inner = fake_slurm.differences(old, new)
         changed[name] = next(inner) ~= nil and inner or nil
      elseif old == new then
         changed[name] = nil
      elseif new == nil then
         changed[name] = false
      else
         changed[name] = new
      end
   end
   return changed
end

return fake_slurm
