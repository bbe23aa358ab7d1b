--- Thousands of random jobs and replies, without a socket: prints its seed, raises on the first fault.
-- Usage: lua fuzz.lua HERE LUA_FOLDER SEED ROUNDS
local here, folder, seed, rounds = arg[1], arg[2], tonumber(arg[3]), tonumber(arg[4])
package.path = here .. "/?.lua;" .. folder .. "/?.lua;" .. package.path
local fake_slurm = require("fake_slurm")
local codec = require("cjson").new()
print("seed " .. seed)
math.randomseed(seed)

local function one_of(choices)
   return choices[math.random(#choices)]
end

local NUMBERS = {
   0, 1, 2, 3, 4, 8, 16, 100, 8000, 0.5, -1,
   65533, 65534, 65535, 4294967293, 4294967294, 4294967295, 1e18,
}
local GRES = { "gres:gpu:4", "gres/gpu:2", "gres/gpu=8", "gres:gpu", "gpu:3", "gres:gpu:a:4", "gpu:0", "" }
local PER_TASK = { "cpu:8", "cpu=8", "cpu=4,gres/gpu:1", "gres/gpu:1", "CPU=8", "", "cpu=,cpu" }
local TEXTS = { "a", "", "\0", "\255\254", "größe", '"\\\n', string.rep("x", 3000), string.rep("\1", 9000) }
local FIELDS = {
   num_tasks = NUMBERS, cpus_per_task = NUMBERS, min_cpus = NUMBERS, max_cpus = NUMBERS,
   pn_min_cpus = NUMBERS, min_nodes = NUMBERS,
   shared = NUMBERS, bitflags = NUMBERS, time_limit = NUMBERS, user_id = NUMBERS,
   gres = GRES, tres_per_task = PER_TASK, name = TEXTS, comment = TEXTS, script = TEXTS, user_name = TEXTS,
   admin_comment = { "JS1:abc", "\255" }, account = TEXTS, array_inx = TEXTS, features = { 7, "x" },
}

local function random_job()
   local job = {}
   for name, choices in pairs(FIELDS) do
      if math.random(3) > 1 then
         job[name] = one_of(choices)
      end
   end
   if math.random(2) == 1 then
      -- Most random sizes contradict each other: half of the jobs are consistent, as sbatch makes them.
      job.cpus_per_task, job.num_tasks = one_of({ 2, 4, 8 }), one_of({ 1, 2, 4294967294 })
      job.min_cpus = job.cpus_per_task * (job.num_tasks < 100 and job.num_tasks or 1)
      job.tres_per_task = one_of({ "cpu=" .. job.cpus_per_task, "gres:gpu:1" })
   end
   job[one_of({ "min_mem_per_node", "min_mem_per_cpu", "no_memory" })] = one_of(NUMBERS)
   job.environment = {
      SLURM_TRES_PER_TASK = one_of(PER_TASK),
      SLURM_GPUS_PER_NODE = one_of({ "4", "1", "x" }),
   }
   return job
end

local VALUES = { 0, 1, 2, 3, 4, 8, 512, 8000, -1, 1.5, 1e18, "1", true, {}, { 1 } }
local LIKELY = { 1, 2, 3 }
local DIMENSIONS = { "cpus_per_task", "gpus_per_node", "mem_per_node_mib", "mem_per_cpu_mib", "wall" }

local function random_reply(request)
   if math.random(10) == 1 then
      return one_of({ "", "{}", "[]", "nul", '{"v":1', "\0\255", string.rep("[", 5000) })
   end
   local reply = { v = one_of({ 1, 1, 1, 1, 1, 1, 1, 1, 1, 2 }), id = request.id }
   reply.token = one_of({ "t:v1", "t", "t", "t", "t", "\n", 7 })
   local grant = {}
   for _, name in ipairs(DIMENSIONS) do
      if request.job[name] and math.random(2) == 1 or math.random(30) == 1 then
         grant[name] = math.random(6) == 1 and one_of(VALUES) or one_of(LIKELY)
      end
   end
   reply.grant = grant
   reply.message = one_of({ "m %s %d", "m", "", "", "\27[2J" })
   return codec.encode(reply)
end

local request
package.loaded["rightsizer.client"] = {
   now_s = os.time,
   exchange = function(_, line)
      assert(#line <= 65536 and line:find("\n", 1, true) == #line, "the request is not one line of 64 KiB")
      request = codec.decode(line)
      return random_reply(request)
   end,
}
local hook = require("rightsizer.hook")
assert(hook.configure({ socket = "/nowhere", deadline_ms = 25 }))

local MAY_CHANGE = {
   cpus_per_task = "cpus_per_task", min_cpus = "cpus_per_task", max_cpus = "cpus_per_task",
   pn_min_cpus = "cpus_per_task", tres_per_task = "cpus_per_task", gres = "gpus_per_node",
   min_mem_per_node = "mem_per_node_mib", min_mem_per_cpu = "mem_per_cpu_mib",
}

local function check_write(job, name, value)
   local dimension = MAY_CHANGE[name]
   if dimension then
      assert(request.job[dimension], name .. " was never asked for")
      assert(type(value) ~= "number" or (value >= 1 and value < job[name]), name .. " is not smaller")
      assert(name ~= "gres" or tonumber(value:match("^gpu:(%d+)$")) < request.job.gpus_per_node, "more GPUs")
   elseif name == "admin_comment" then
      local old = job.admin_comment
      assert(value:sub(1, #(old or "")) == (old or ""), "admin_comment was overwritten")
   else
      assert(name == "environment", name .. " may not be written")
   end
end

local failing_field
local function fail_sometimes(name)
   if name == failing_field then
      failing_field = nil
      error("no such luck")
   end
end

local function check_round()
   local job = random_job()
   failing_field = math.random(5) == 1 and one_of({ "min_cpus", "gres", "admin_comment" }) or nil
   local proxy, values = fake_slurm.job_desc(job, fail_sometimes)
   slurm = fake_slurm.new()
   local done, reason = hook.submit(proxy, {}, 0)
   local changed = fake_slurm.differences(job, values)
   if not done then
      assert(next(changed) == nil, "refused (" .. reason .. ") but changed: " .. tostring(next(changed)))
      assert(#slurm.lines == 1 and #slurm.shown == 0, "a refusal logs one line")
      return reason
   end
   for name, value in pairs(changed) do
      check_write(job, name, value)
   end
   return next(changed) and "changed" or "unchanged"
end

local outcomes = {}
for round = 1, rounds do
   local completed, outcome = pcall(check_round)
   assert(completed, "round " .. round .. ": " .. tostring(outcome))
   outcomes[outcome] = (outcomes[outcome] or 0) + 1
end
for outcome, count in pairs(outcomes) do
   print(outcome .. " " .. count)
end
assert((outcomes.changed or 0) > rounds / 50, "too few jobs were changed to prove anything")
assert(not outcomes.internal_error and not outcomes.rollback_failed, "the hook caught an error of its own")
