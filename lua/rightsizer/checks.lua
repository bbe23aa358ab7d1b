--- Checks a reply before anything is written: the service is trusted with nothing.
-- Pure: it sees the decoded reply and what was asked, and returns a decision or a named reason.
local text = require("rightsizer.text")

local checks = {}

local MAX_TEXT_BYTES = 512
local MEMBERS = { v = true, id = true, grant = true, token = true, message = true }
--- One line per dimension, with the kinds in which it can be asked for. A job uses one kind of a line, and
-- may be granted only that one.
local KINDS = {
   { "cpus_per_task" },
   { "gpus_per_node", "gpus_per_job", "gpus_per_task" },
   { "mem_per_node_mib", "mem_per_cpu_mib", "mem_per_gpu_mib" },
}
--- A direct srun or salloc breaks if the server changes these; its own client may change them.
local BATCH_ONLY = {
   cpus_per_task = true, gpus_per_node = true, gpus_per_job = true, gpus_per_task = true,
   mem_per_gpu_mib = true,
}
--- Every kind that can be granted, with all kinds of its line.
checks.KINDS_OF = {}
local KINDS_OF = checks.KINDS_OF
for _, kinds in ipairs(KINDS) do
   for _, dimension in ipairs(kinds) do
      KINDS_OF[dimension] = kinds
   end
end

--- An infinity minus itself is NaN, as NaN minus itself is, and NaN equals nothing.
local function is_whole(value)
   return type(value) == "number" and value - value == 0 and value == math.floor(value)
end

local function why_not_asked(dimension, ask)
   for _, kind in ipairs(KINDS_OF[dimension]) do
      if ask[kind] then
         return "wrong_kind"
      end
   end
   return "not_asked"
end

--- Returns why `value` may not be granted for `dimension`; nil if it may.
local function refusal(dimension, value, ask, by_client)
   local asked = ask[dimension]
   if not is_whole(value) then
      return "not_an_integer"
   elseif value < 1 then
      return "below_one"
   elseif not asked then
      return why_not_asked(dimension, ask)
   elseif BATCH_ONLY[dimension] and not (ask.batch or by_client) then
      return "not_batch"
   elseif value > asked then
      return "above_request"
   end
   return nil
end

local function check_grant(grant, ask, by_client)
   if grant == nil then
      return {}
   elseif type(grant) ~= "table" then
      return nil, "grant_not_an_object"
   end
   for dimension, value in pairs(grant) do
      local reason = KINDS_OF[dimension] and refusal(dimension, value, ask, by_client)
      if not KINDS_OF[dimension] then
         return nil, "unknown_grant"
      elseif reason then
         return nil, reason
      end
   end
   return grant
end

local function is_short_text(value, is_allowed)
   return type(value) == "string" and #value <= MAX_TEXT_BYTES and is_allowed(value)
end

local function check_envelope(reply, id)
   if type(reply) ~= "table" then
      return nil, "not_an_object"
   elseif reply.v ~= 1 then
      return nil, "wrong_version"
   elseif reply.id ~= id then
      return nil, "wrong_id"
   end
   for member in pairs(reply) do
      if not MEMBERS[member] then
         return nil, "unknown_member"
      end
   end
   return true
end

local function unless_empty(value)
   return value ~= "" and value or nil
end

--- Returns `{ grant = {...}, token = ..., message = ... }`, or nil and the reason why the reply is not used.
-- `by_client`: the decision is carried out on the client's side, before anything is submitted.
function checks.decision(reply, id, ask, by_client)
   local fits, reason = check_envelope(reply, id)
   if not fits then
      return nil, reason
   end
   local grant, grant_reason = check_grant(reply.grant, ask, by_client)
   if not grant then
      return nil, grant_reason
   elseif reply.token ~= nil and not is_short_text(reply.token, text.is_printable_ascii) then
      return nil, "bad_token"
   elseif reply.message ~= nil and not is_short_text(reply.message, text.is_displayable) then
      return nil, "bad_message"
   end
   return { grant = grant, token = unless_empty(reply.token), message = unless_empty(reply.message) }
end

return checks
