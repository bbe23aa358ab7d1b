--- Stops asking a service that fails: after three failures in a row, or when half of the last twenty calls
-- failed, for 30 seconds; then one call probes it. Its state is that of the Lua state, no file and no thread.
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

--- Counts down by how far the clock moved on since the last call: time set back neither counts nor adds.
local function is_waiting(state, now_s)
   state.left_s = state.left_s - math.max(now_s - state.last_s, 0)
   state.last_s = now_s
   return state.left_s > 0
end

--- How much of the usual time a call may take: half of what the last one had, while calls fail in a row, so
-- that a service that hangs costs less than two deadlines before it is left alone. A probe has all of it.
local function patience(state)
   return state.is_open and 1 or 0.5 ^ state.in_a_row
end

--- A function like `call` that answers nil and `breaker_open` while the service is left alone. `call` takes
-- the share of the usual time that it may take, then the same arguments; it returns a result, or nil and a
-- reason. `now_s` tells the time in seconds (nil: not known); the reasons in `harmless` say nothing about the
-- service; `announce(is_open)` hears of every change.
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
         -- Before the call: a probe that raises leaves it open as well.
         open(state, state.last_s)
      end
      return settle(call(patience(state), ...))
   end
end

return breaker
