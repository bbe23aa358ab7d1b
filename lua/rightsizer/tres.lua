--- Reads and edits the few TRES strings that the hook understands; all others stay as the user wrote them.
-- GRES prefix: `gres:gpu:2` up to 23.02, `gres/gpu:2` from 23.11, `gres/gpu=2` possible from 24.05. Each
-- release wants its own form back, so an edit replaces the digits and keeps every other byte. slurmctld holds
-- its locks meanwhile, and checks a string's length only afterwards: each pattern here takes time in
-- proportion to the length, never to its square.
local tres = {}

local MAX_DIGITS = 9

local function is_gpu_type(text)
   return text:find("^[%w_.%-]+$") ~= nil and not text:find("^%d+$")
end

--- Returns what precedes a GPU entry's count, and the count: `gres/gpu:a100:2` gives `gres/gpu:a100:` and 2.
-- An entry without a count asks for one (`gpu`, `gpu:a100`). Nil for what is not about GPUs or not
-- understood.
local function gpu_parts(entry)
   local name = entry:match("^gres[:/](.*)$") or entry
   -- Reads from the end, and no further than a count can reach: `(.-)(%d+)$` would try again at every digit.
   local digits = name:sub(-MAX_DIGITS - 1):match("^.-(%d+)$")
   local kind = digits and name:sub(1, -#digits - 1):match("^gpu([:=].*)$")
   if kind and (kind == ":" or kind == "=" or is_gpu_type(kind:match("^:(.*)[:=]$") or "")) then
      local count = #digits <= MAX_DIGITS and tonumber(digits)
      return entry:sub(1, -#digits - 1), count and count >= 1 and count or nil
   elseif name == "gpu" or name:find("^gpu:%a[%w_.%-]*$") then
      return entry .. ":", 1
   end
   return nil
end

--- Returns how many GPUs a list such as `gres/gpu:a100:2,gres/license:1` asks for; nil unless exactly one of
-- its entries is about GPUs and is understood.
function tres.gpus(request)
   local found
   for entry in request:gmatch("[^,]+") do
      local _, count = gpu_parts(entry)
      if entry:lower():find("gpu", 1, true) then
         if found or not count then
            return nil
         end
         found = count
      end
   end
   return found
end

--- Returns the same list with `gpus` in place of the count in its GPU entry.
function tres.with_gpus(request, gpus)
   local changed = request:gsub("[^,]+", function(entry)
      local head, count = gpu_parts(entry)
      return count and head .. string.format("%d", gpus)
   end)
   return changed
end

--- Returns the MiB per GPU in `gres:gpu:2048`; nil for anything but one GPU entry with a number.
function tres.memory_per_gpu(request)
   local head, mib = gpu_parts(request)
   return mib and head ~= request .. ":" and not request:find(",", 1, true) and mib or nil
end

local function with_commas(request)
   return "," .. request .. ","
end

--- Returns the CPUs in a per-task request (`cpu=8,gres/gpu:1`): nil if it names none, 0 if it names them in a
-- way that is not understood.
function tres.cpus(request)
   if not request:lower():find("cpu", 1, true) then
      return nil
   end
   local digits = with_commas(request):match(",cpu[:=](%d+),")
   return digits and #digits <= 6 and tonumber(digits) or 0
end

--- Returns the same per-task request with `cpus` in place of its CPUs.
function tres.with_cpus(request, cpus)
   local changed = with_commas(request):gsub("(,cpu[:=])%d+,", "%1" .. string.format("%d", cpus) .. ",", 1)
   return changed:sub(2, -2)
end

--- Returns `{ cpus = …, gpus = … }` of a per-task request that has at most one entry of each; nil if it has
-- more.
function tres.per_task(request)
   local said = {}
   for entry in request:gmatch("[^,]+") do
      local dimension = entry:find("^cpu[:=]%d+$") and "cpus" or "gpus"
      local _, gpus = gpu_parts(entry)
      local count = dimension == "cpus" and tres.cpus(entry) or gpus
      if not count or said[dimension] then
         return nil
      end
      said[dimension] = count
   end
   return said
end

--- Returns the GPUs in `gres/gpu:per_task:2`, which clients from 24.05 add to --gpus-per-task by themselves.
function tres.bound_per_task(binding)
   local digits = binding:match("^gres[:/]gpu:per_task:(%d+)$")
   return digits and #digits <= MAX_DIGITS and tonumber(digits) or nil
end

--- Returns the same binding for `gpus`.
function tres.bind_per_task(binding, gpus)
   return binding:match("^(.*:)") .. string.format("%d", gpus)
end

return tres
