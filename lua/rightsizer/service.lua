--- Asks the service about one job and checks what it says: for slurmctld's hook and for the clients' filter.
local checks = require("rightsizer.checks")
local client = require("rightsizer.client")
local frame = require("rightsizer.frame")

local service = {}

local function understood(codec, answer, id, ask, is_client)
   local decoded, reply = pcall(codec.decode, answer)
   if not decoded then
      return nil, "bad_json"
   end
   return checks.decision(reply, id, ask, is_client)
end

--- A checked decision about `ask`, or nil and a reason. `kind` is the request's: `cli` for a client's.
function service.ask(codec, ask, socket, deadline_ms, kind)
   local now_s, no_clock = client.now_s()
   if not now_s then
      return nil, no_clock
   end
   local id = frame.new_id(now_s)
   local line, reason = frame.request(codec, id, ask, kind)
   if not line then
      return nil, reason
   end
   local answer, failure = client.exchange(socket, line, deadline_ms)
   if not answer then
      return nil, failure
   end
   local decision, nonsense = understood(codec, answer, id, ask, kind == "cli")
   if not decision then
      client.hang_up()
   end
   return decision, nonsense
end

return service
