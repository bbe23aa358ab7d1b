--- Who a uid is, remembered for ten minutes. Each time that Lua looks at `user_name`, slurmctld asks the
-- system's directory of users, with its locks held and for as long as that takes: 36 µs from local files,
-- which is a third of reading a job. From 23.11 on it need not ask where the client has sent the name along.
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

--- The name of a job's user; nil where there is none, which is asked anew: it may be known the next time.
function users.name(fields, uid)
   forget_in_time()
   local name = names[uid] or text.given(fields.user_name)
   if name and uid and not names[uid] then
      names[uid], known = name, known + 1
   end
   return name
end

return users
