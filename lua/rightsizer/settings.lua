--- The site's settings: a Lua file that returns { socket = "…", deadline_ms = 25, kill_switch = "…" }.
-- Clients may also have `salloc = true`, which lets an salloc with a job name be sized; the hook may have
-- `inputs = true` if the service looks at the size of input files, for which it needs the working directory.
local settings = {}

settings.FILE = "rightsizer_site"

local DEFAULT_DEADLINE_MS = 25
local MAX_DEADLINE_MS = 1000

--- Returns a copy of `site` with defaults; nil and a message if it cannot be used.
function settings.checked(site)
   if type(site) ~= "table" then
      return nil, "the site file does not return a table"
   elseif type(site.socket) ~= "string" or site.socket == "" then
      return nil, "socket must be the path of the service's socket"
   elseif site.kill_switch ~= nil and type(site.kill_switch) ~= "string" then
      return nil, "kill_switch must be a path"
   end
   local deadline_ms = site.deadline_ms == nil and DEFAULT_DEADLINE_MS or site.deadline_ms
   if type(deadline_ms) ~= "number" or not (deadline_ms >= 1 and deadline_ms <= MAX_DEADLINE_MS) then
      return nil, "deadline_ms must lie between 1 and 1000"
   end
   return {
      socket = site.socket, deadline_ms = deadline_ms, kill_switch = site.kill_switch,
      salloc = site.salloc == true, inputs = site.inputs == true,
   }
end

--- Returns what loading or running a site file reported about a mistake in it; nil if there is no such file.
local function mistake(problem, failure)
   if problem and not problem:find("^cannot open") then
      return problem
   end
   local is_absent = failure:find("^module '")
   return failure:match("^error loading module.-:%s*(.*)$") or not is_absent and failure or nil
end

--- Returns the settings in `rightsizer_site.lua` (or another `name`) in `folder`, else on package.path; nil
-- and a message if there are none.
function settings.load(folder, name)
   name = name or settings.FILE
   local chunk, problem, loaded, site
   if folder then
      chunk, problem = loadfile(folder .. "/" .. name .. ".lua")
   end
   if chunk then
      loaded, site = pcall(chunk)
   else
      loaded, site = pcall(require, name)
   end
   if not loaded then
      local why = mistake(problem, tostring(site))
      return nil, why and name .. ".lua has a mistake: " .. why or "no readable " .. name .. ".lua"
   end
   return settings.checked(site)
end

return settings
