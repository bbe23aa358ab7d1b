--- Reads and edits the few TRES strings that the hook understands; all others are left to their users.
-- GRES prefix: `gres:gpu:2` up to 23.02, `gres/gpu:2` from 23.11, `gres/gpu=2` possible from 24.05.
local tres = {}

--- How many GPUs a request for plain GPUs and nothing else asks for; nil for any other request.
function tres.plain_gpus(request)
   local name = request:match("^gres[:/](.*)$") or request
   if name == "gpu" then
      return 1
   end
   local digits = name:match("^gpu[:=](%d+)$")
   local count = digits and #digits <= 6 and tonumber(digits)
   return count and count >= 1 and count or nil
end

local function with_commas(request)
   return "," .. request .. ","
end

--- The CPUs in a per-task request (`cpu=8,gres/gpu:1`): nil when it does not mention any, 0 when it does in
-- a way that is not understood.
function tres.cpus(request)
   if not request:lower():find("cpu", 1, true) then
      return nil
   end
   local digits = with_commas(request):match(",cpu[:=](%d+),")
   return digits and #digits <= 6 and tonumber(digits) or 0
end

--- Whether a per-task request says nothing but its CPUs.
function tres.is_cpus_alone(request)
   return request:find("^cpu[:=]%d+$") ~= nil
end

--- The same per-task request with `cpus` in place of the CPUs it had.
function tres.with_cpus(request, cpus)
   local changed = with_commas(request):gsub("(,cpu[:=])%d+,", "%1" .. string.format("%d", cpus) .. ",", 1)
   return changed:sub(2, -2)
end

return tres
