--- Tests the circuit breaker under hundreds of random schedules, against a count kept separately.
-- Usage: lua breaker.lua HERE LUA_FOLDER
package.path = arg[1] .. "/?.lua;" .. arg[2] .. "/?.lua;" .. package.path
local breaker = require("rightsizer.breaker")
math.randomseed(20261120)

local function same(got, wanted, what)
   assert(got == wanted, string.format("%s: got %s, wanted %s", what, tostring(got), tostring(wanted)))
end

--- A breaker around a service that answers as `service.answer` says, with a clock set by hand.
local function new_service()
   local service = { now_s = 1000, calls = 0, changes = {} }
   local function call(share)
      service.calls = service.calls + 1
      service.share = share
      if service.answer == "raise" then
         error("raised")
      elseif service.answer == "good" then
         return "decision", "ask"
      end
      return nil, service.answer
   end
   local function clock()
      return service.now_s
   end
   local function announce(is_open)
      service.changes[#service.changes + 1] = is_open
   end
   service.guarded = breaker.around(call, clock, { harmless = true }, announce)
   function service.ask(answer)
      service.answer = answer
      local before = service.calls
      local _, result, reason = pcall(service.guarded)
      return service.calls - before == 1, result, reason
   end
   return service
end

local function fail(service, times)
   for _ = 1, times do
      service.ask("deadline")
   end
end

local service = new_service()
local called, result, second = service.ask("good")
same(called and result, "decision", "a result passes")
same(second, "ask", "with its second value")
fail(service, 2)
service.ask("good")
fail(service, 2)
same(#service.changes, 0, "two in a row leave it closed")
fail(service, 1)
same(service.changes[1], true, "three in a row open it")
called, result, second = service.ask("good")
same(called, false, "no call while open")
same(result == nil and second, "breaker_open", "the reason")
service.now_s = service.now_s + 29.9
same(service.ask("good"), false, "still open")
service.now_s = service.now_s + 0.2
same(service.ask("closed"), true, "one probe")
same(service.ask("good"), false, "which failed")
same(#service.changes, 1, "a failed probe is no change")
service.now_s = service.now_s + 30
same(service.ask("good"), true, "the second probe")
same(service.changes[2], false, "closes it")
fail(service, 2)
same(service.ask("good"), true, "with a clean slate")

--- A service that hangs is given less time with each call; a probe gets all of it, and so do calls after a
-- success.
service = new_service()
for _, share in ipairs({ 1, 0.5, 0.25 }) do
   service.ask("deadline")
   same(service.share, share, "while calls fail in a row")
end
service.now_s = service.now_s + 31
service.ask("good")
same(service.share, 1, "a probe")
fail(service, 1)
service.ask("good")
service.ask("good")
same(service.share, 1, "after a good one")

--- Half of the last twenty fail, but never three in a row.
service = new_service()
for round = 1, 9 do
   service.ask("good")
   service.ask("bad_json")
   same(#service.changes, 0, "failure " .. round)
end
service.ask("good")
service.ask("bad_json")
same(service.changes[1], true, "the tenth failure of twenty calls")

--- Old failures drop out of the window.
service = new_service()
for _ = 1, 200 do
   service.ask("bad_json")
   service.ask("good")
   service.ask("good")
end
same(#service.changes, 0, "a third of the calls may fail")

--- An answer that says nothing about the service neither opens nor closes the breaker; a call that raises
-- does not count, and a probe that raises leaves it open.
service = new_service()
for _ = 1, 50 do
   service.ask("harmless")
   service.ask("raise")
end
same(#service.changes, 0, "harmless")
fail(service, 3)
service.now_s = service.now_s + 31
same(service.ask("harmless"), true, "a probe without an outcome")
same(service.ask("raise"), true, "so there is another")
same(service.ask("good"), false, "which raised")

--- A clock set back holds it open for no more than 30 s of its time after that, however often it happens.
service = new_service()
fail(service, 3)
service.now_s = service.now_s - 86400
same(service.ask("good"), false, "a day back")
service.now_s = service.now_s + 30
same(service.ask("good"), true, "30 s later")

local ANSWERS = { "good", "good", "good", "deadline", "deadline", "wrong_id", "harmless", "raise" }
local STEPS_S = { 0, 0, 0.001, 1, 10, 29, 30, 31, 3600, -0.5, -20, -86400 }

--- Whether the answers to the calls made while closed were enough to open it.
local function should_open(answers)
   local in_a_row, failed = 0, 0
   for index, answer in ipairs(answers) do
      local bad = answer ~= "good"
      in_a_row = bad and in_a_row + 1 or 0
      failed = failed + (bad and index > #answers - 20 and 1 or 0)
   end
   return in_a_row >= 3 or failed >= 10
end

local function check_schedule()
   local one, answers, waited_s, is_open = new_service(), {}, 0, false
   local good_share = math.random(3)
   for _ = 1, 300 do
      local step_s = STEPS_S[math.random(#STEPS_S)]
      one.now_s = one.now_s + step_s
      waited_s = waited_s + math.max(step_s, 0)
      local answer = math.random(4) <= good_share and "good" or ANSWERS[math.random(#ANSWERS)]
      local was_called = one.ask(answer)
      same(was_called, not is_open or waited_s >= 30, "a call")
      if was_called and is_open then
         waited_s = answer == "harmless" and 30 or 0
         is_open = answer ~= "good"
      elseif was_called and answer ~= "harmless" and answer ~= "raise" then
         answers[#answers + 1] = answer
         is_open = should_open(answers)
         waited_s = 0
      end
      answers = is_open and {} or answers
      same(one.changes[#one.changes] or false, is_open, "the last change told")
   end
end

for _ = 1, 500 do
   check_schedule()
end
