--- Stops asking a service that fails: for 30 seconds, after three failures in a row or if half of the last
-- twenty calls failed. Then one call probes it. The state lives in the Lua state; there is no file or thread.
local breaker = {}

breaker.FAILURES_IN_A_ROW = 3
breaker.WINDOW = 20
breaker.OPEN_S = 30

local function forget(state)
   state.in_a_row, state.recent, state.position, state.failed = 0, {}, 0, 0
end

local function new_state()
   local state = { is_open = false, last_s = 0, left_s = 0 }
   forget(state)
   return state
end

local function remember(state, has_failed)
   state.position = state.position % breaker.WINDOW + 1
   state.failed = state.failed - (state.recent[state.position] or 0) + (has_failed and 1 or 0)
   state.recent[state.position] = has_failed and 1 or 0
   state.in_a_row = has_failed and state.in_a_row + 1 or 0
   return state.in_a_row >= breaker.FAILURES_IN_A_ROW or state.failed >= breaker.WINDOW / 2
end

local function open(state, now_s)
   state.is_open, state.last_s, state.left_s = true, now_s, breaker.OPEN_S
end

--- Counts down by how far the clock has advanced since the last call. A clock that is set back changes
-- nothing.
local function is_waiting(state, now_s)
   state.left_s = state.left_s - math.max(now_s - state.last_s, 0)
   state.last_s = now_s
   return state.left_s > 0
end

--- Returns the share of the usual time that a call may take: it halves with each failure in a row, so that a
-- service that hangs costs less than two deadlines before it is left alone. A probe gets all of it.
local function patience(state)
   return state.is_open and 1 or 0.5 ^ state.in_a_row
end

--- Returns a function like `call` that returns nil and `breaker_open` while the service is left alone.
-- `call` takes the share of the usual time that it may use, then the caller's arguments. It returns a result,
-- or nil and a reason. `now_s` returns the time in seconds (nil: not known). Reasons in `harmless` say
-- nothing about the service. `announce(is_open)` is called at every change.
function breaker.around(call, now_s, harmless, announce)
   local state = new_state()

   local function settle(result, reason)
      if result == nil and harmless[reason] then
         state.left_s = 0
      elseif state.is_open and result ~= nil then
         state.is_open = false
         forget(state)
         announce(false)
      elseif not state.is_open and remember(state, result == nil) then
         open(state, now_s() or 0)
         announce(true)
      end
      return result, reason
   end

   return function(...)
      if state.is_open and is_waiting(state, now_s() or state.last_s) then
         return nil, "breaker_open"
      elseif state.is_open then
         -- Done before the call, so that the breaker stays open if the probe raises an error.
         open(state, state.last_s)
      end
      return settle(call(patience(state), ...))
   end
end

return breaker
