--- Maps a uid to a user name, which is remembered for ten minutes. Each time that Lua reads `user_name`,
-- slurmctld asks the system's user directory, holding its locks for as long as that takes: 36 µs from local
-- files, a third of the time to read a job. From 23.11 it need not ask if the client has sent the name.
local text = require("rightsizer.text")

local users = {}

local HOLDS_S = 600
local MOST = 4096

local names, known, since_s = {}, 0, 0

local function forget_in_time()
   local now_s = os.time()
   local age_s = now_s - since_s
   if age_s < 0 or age_s >= HOLDS_S or known >= MOST then
      names, known, since_s = {}, 0, now_s
   end
end

--- Returns the name of a job's user; nil if there is none. That is not remembered: it may be known next time.
function users.name(fields, uid)
   forget_in_time()
   local name = names[uid] or text.given(fields.user_name)
   if name and uid and not names[uid] then
      names[uid], known = name, known + 1
   end
   return name
end

return users
