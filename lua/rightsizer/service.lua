--- Asks the service about one job and checks the reply: for slurmctld's hook and for the clients' filter.
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

--- After a pause this long, the code and data of a call have left the processor's nearest caches.
local COLD_S = 0.01
local PRETENDED = '{"v":1,"id":"%s","grant":{},"token":"rightsizer=1;id=0"}'
local last_s = 0

--- Returns what to do while the service works: nothing if the last call was recent; else a rehearsal of what
-- its answer will need, with a decision that grants one of everything, so that the caches are warm for the
-- real one. The rehearsal has no effect.
local function rehearsal(codec, id, ask, now_s, rehearse)
   local is_warm = now_s - last_s >= 0 and now_s - last_s < COLD_S
   last_s = now_s
   if is_warm or not rehearse then
      return nil
   end
   return function()
      local decision = understood(codec, PRETENDED:format(id), id, ask, false)
      for dimension in pairs(checks.KINDS_OF) do
         decision.grant[dimension] = ask[dimension] and 1
      end
      rehearse(decision)
   end
end

--- Returns a checked decision about `ask`, or nil and a reason. `kind` is the request's: `cli` for a client.
-- `rehearse(decision)` does what a decision will need, without any effect.
function service.ask(codec, ask, socket, deadline_ms, kind, rehearse)
   local now_s, no_clock = client.now_s()
   if not now_s then
      return nil, no_clock
   end
   local id = frame.new_id(now_s)
   local line, reason = frame.request(codec, id, ask, kind)
   if not line then
      return nil, reason
   end
   local meanwhile = rehearsal(codec, id, ask, now_s, rehearse)
   local answer, failure = client.exchange(socket, line, deadline_ms, meanwhile)
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
