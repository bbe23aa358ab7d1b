--- Carries out a decision on the options of a direct srun or salloc: all of it, or nothing.
-- The client builds its request from the options afterwards, so whatever repeats a number follows by itself.
local options = require("rightsizer.options")

local lowering = {}

--- Slurm rejects a job with a longer comment.
local MAX_COMMENT_BYTES = 1024

local MEMORY_OPTION = {
   mem_per_node_mib = "mem", mem_per_cpu_mib = "mem-per-cpu", mem_per_gpu_mib = "mem-per-gpu",
}

--- Returns the option to write for a granted dimension, which its user has set, and its text.
local function write_of(set, dimension, granted)
   local option = MEMORY_OPTION[dimension]
   if dimension == "cpus_per_task" then
      return "cpus-per-task", string.format("%d", granted)
   elseif option then
      return option, string.format("%dM", granted)
   end
   option = options.gpu_option(set, dimension)
   return option, options.with_gpus(option, set[option], granted)
end

--- Puts the word that names the decision into the comment, where the job_submit hook takes it out again.
local function write_of_comment(set, word)
   local old = set.comment or ""
   local new = old == "" and word or old .. " " .. word
   if not word:find("^rightsizer%-cli=%x+$") then
      return nil, "bad_token"
   elseif #new > MAX_COMMENT_BYTES then
      return nil, "comment_too_long"
   end
   return { option = "comment", new = new, old = old }
end

--- Returns the writes of a checked decision, as a list of option, new and old text; nil and a reason. Nothing
-- is lowered without the word by which accounting finds what was asked for.
function lowering.plan(set, ask, decision)
   local list = {}
   for dimension, granted in pairs(decision.grant) do
      if granted ~= ask[dimension] then
         local option, new = write_of(set, dimension, granted)
         list[#list + 1] = { option = option, new = new, old = set[option] }
      end
   end
   if not decision.token and #list > 0 then
      return nil, "no_token"
   elseif decision.token then
      local comment, reason = write_of_comment(set, decision.token)
      if not comment then
         return nil, reason
      end
      list[#list + 1] = comment
   end
   return list
end

--- Slurm refuses a write silently: only reading the option back shows whether it was written.
local function is_written(fields, write)
   local value = fields[write.option]
   return type(value) == "string"
      and (value == write.new or options.mib(value) ~= nil and options.mib(value) == options.mib(write.new))
end

local function put(fields, write)
   fields[write.option] = write.new
   return is_written(fields, write)
end

local function put_back(fields, list, last)
   for index = last, 1, -1 do
      pcall(function()
         fields[list[index].option] = list[index].old
      end)
   end
end

--- Does all writes, or puts back what was written. Returns true, or nil and a reason.
function lowering.apply(list, fields)
   for index, write in ipairs(list) do
      local completed, written = pcall(put, fields, write)
      if not (completed and written) then
         put_back(fields, list, index)
         return nil, "write_failed"
      end
   end
   return true
end

return lowering
