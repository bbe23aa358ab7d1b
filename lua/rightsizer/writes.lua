--- Gathers the writes that a decision needs, and then does all of them or none.
local writes = {}

local function environment_value(fields, name)
   local environment = fields.environment
   local value = environment and environment[name]
   return type(value) == "string" and value or nil
end

local function planned(list, name, in_environment)
   for _, write in ipairs(list) do
      if write.field == name and write.environment == in_environment then
         return write
      end
   end
   return nil
end

local function add(list, name, in_environment, old, new)
   local earlier = planned(list, name, in_environment)
   if earlier then
      earlier.new = new
   elseif old ~= new then
      list[#list + 1] = { field = name, environment = in_environment, old = old, new = new }
   end
end

--- Returns a field's value as it will be once `list` is done.
function writes.value(list, fields, name)
   local earlier = planned(list, name, nil)
   if earlier then
      return earlier.new
   end
   return fields[name]
end

--- Plans to set a field; plans nothing if it already has that value.
function writes.set(list, fields, name, new)
   add(list, name, nil, fields[name], new)
end

--- Returns a variable of the job's environment as it will be once `list` is done; nil if it is not set.
function writes.variable(list, fields, name)
   local earlier = planned(list, name, true)
   return earlier and earlier.new or environment_value(fields, name)
end

--- Plans to set a variable that the job's environment has.
function writes.export(list, fields, name, new)
   add(list, name, true, environment_value(fields, name), new)
end

local function put(fields, write, value)
   if write.environment then
      fields.environment[write.field] = value
   else
      fields[write.field] = value
   end
end

local function put_back(fields, list, last)
   local restored = true
   for index = last, 1, -1 do
      restored = pcall(put, fields, list[index], list[index].old or "") and restored
   end
   return restored
end

--- Does all writes, or puts back what was written. Returns true, or nil and a reason.
function writes.apply(list, fields)
   for index, write in ipairs(list) do
      if not pcall(put, fields, write, write.new) then
         return nil, put_back(fields, list, index) and "write_failed" or "rollback_failed"
      end
   end
   return true
end

return writes
