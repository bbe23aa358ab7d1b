--- Sends random jobs and replies through the real hook: prints its seed, raises on the first fault.
-- Usage: lua fuzz.lua HERE LUA_FOLDER SEED ROUNDS [SOCKET]
-- Without SOCKET the replies are made up here, good and bad; with it they come from the service there.
local here, folder, seed, rounds, path = arg[1], arg[2], tonumber(arg[3]), tonumber(arg[4]), arg[5]
package.path = here .. "/?.lua;" .. folder .. "/?.lua;" .. package.path
local fake_slurm = require("fake_slurm")
local numbers = require("rightsizer.numbers")
local codec = require("cjson").new()
print("seed " .. seed)
math.randomseed(seed)

local NO_VAL16, NO_VAL = 65534, 4294967294
local MAX_REQUEST_BYTES = 65536
local DEADLINE_MS = 1000

local function one_of(choices)
   return choices[math.random(#choices)]
end

-- Jobs ---------------------------------------------------------------------------------------------------

local NUMBERS = {
   0, 1, 2, 3, 4, 8, 16, 100, 8000, 0.5, -1,
   65533, 65534, 65535, 4294967293, 4294967294, 4294967295, 1e18,
}
--- What anybody may type; parts.lua has longer texts, for which the checks below would take minutes.
local DIGITS = string.rep("1", 3000) .. "x"
local GPUS = {
   "gres:gpu:4", "gres/gpu:2", "gres/gpu=8", "gres:gpu", "gpu:3", "gres:gpu:a:4", "gpu:0", "",
   "gres/gpu:a100=4", "gres/gpu:1g.5gb:2", "gres:gpu:4,gres:license:2", "gres/x:1,gres/gpu:a:2,gres/y",
   "gres:gpu:a:2,gres:gpu:b:2", "gres:gpu:2k", "gres:gpu:4:2", "gres:shard:4", ",,gpu:2,", "gpu:a100",
   "GPU:2", "gres/gpu:" .. DIGITS, "gres:gpu:a:" .. DIGITS,
}
local PER_TASK = {
   "cpu:8", "cpu=8", "cpu=4,gres/gpu:1", "gres/gpu:1", "CPU=8", "", "cpu=,cpu",
   "cpu=2,gres/gpu:a100=2", "gres/gpu=3", "gres/gpu=3,license/a=1", "cpu=4,cpu=4",
   "cpu=" .. DIGITS, "cpu=4,gres/gpu:" .. DIGITS,
}
local PER_GPU = { "gres:gpu:2048", "gres/gpu:a100:100", "gres/gpu=7", "gres:gpu", "gres:gpu:0", "gres:x:1",
   "gres:gpu:" .. DIGITS }
local BINDINGS = { "gres/gpu:per_task:2", "gres/gpu:per_task:1", "gres/gpu:single:1", "",
   "gres/gpu:per_task:" .. DIGITS }
local TEXTS = { "a", "", "\0", "\255\254", "größe", '"\\\n', string.rep("x", 3000), string.rep("\1", 9000) }
local FIELDS = {
   num_tasks = NUMBERS, cpus_per_task = NUMBERS, min_cpus = NUMBERS, max_cpus = NUMBERS,
   pn_min_cpus = NUMBERS, min_nodes = NUMBERS, max_nodes = NUMBERS, ntasks_per_node = NUMBERS,
   shared = NUMBERS, bitflags = NUMBERS, time_limit = NUMBERS, user_id = NUMBERS,
   name = TEXTS, comment = TEXTS, script = TEXTS, user_name = TEXTS,
   admin_comment = { "JS1:abc", "\255" }, account = TEXTS, array_inx = TEXTS, features = { 7, "x", "[x*2]" },
}
--- Set in few jobs: most of these prevent a CPU or GPU grant, and grants are what this tests.
local RARE = {
   tres_bind = BINDINGS, tres_per_socket = GPUS, cpus_per_tres = { "gres:gpu:2" }, ntasks_per_tres = { 1, 0 },
   het_job_offset = { 0, 1 }, threads_per_core = NUMBERS, reservation = TEXTS, licenses = TEXTS,
}
local GPU_FIELDS = { gres = GPUS, tres_per_job = GPUS, tres_per_task = PER_TASK }
local ENVIRONMENT = {
   SLURM_TRES_PER_TASK = PER_TASK, SLURM_TRES_BIND = BINDINGS,
   SLURM_GPUS_PER_NODE = { "4", "1", "x", "a100:4" }, SLURM_GPUS = { "4", "a100:2", "a:1,b:1", "" },
   SLURM_GPUS_PER_TASK = { "3", "1", "a100:2" }, SLURM_MEM_PER_GPU = { "2048", "100", "2G" },
   SRUN_CPUS_PER_TASK = { "8", "1", "x", "1e9", "" }, SLURM_GRES = { "gpu:4", "nic:2" },
}

local function maybe(job, choices_of, odds)
   for name, choices in pairs(choices_of) do
      if math.random(odds) == 1 then
         job[name] = one_of(choices)
      end
   end
end

--- Sizes that agree with each other, as sbatch makes them: most random ones would not.
local function make_consistent(job)
   job.cpus_per_task, job.num_tasks = one_of({ 2, 4, 8 }), one_of({ 1, 2, NO_VAL })
   job.min_nodes, job.ntasks_per_node = one_of({ 1, 2, NO_VAL }), one_of({ 1, 2, NO_VAL16 })
   local nodes = job.min_nodes < NO_VAL and job.min_nodes or 1
   local per_node = job.ntasks_per_node < NO_VAL16 and job.ntasks_per_node or 1
   job.min_cpus = job.cpus_per_task * (job.num_tasks < NO_VAL and job.num_tasks or nodes * per_node)
   job.pn_min_cpus, job.shared = one_of({ job.cpus_per_task, NO_VAL16 }), NO_VAL16
   if math.random(2) == 1 then
      local cpus, gpus = "cpu=" .. job.cpus_per_task, one_of({ "", ",gres/gpu=2", ",gres/gpu:a100:2" })
      job.tres_per_task = cpus .. gpus
      job.tres_bind = gpus ~= "" and "gres/gpu:per_task:2" or nil
      job.environment = { SLURM_TRES_PER_TASK = job.tres_per_task, SLURM_TRES_BIND = job.tres_bind }
   end
end

local function random_job()
   local job = { environment = {} }
   maybe(job, FIELDS, 2)
   maybe(job, RARE, 12)
   maybe(job.environment, ENVIRONMENT, 4)
   if math.random(2) == 1 then
      make_consistent(job)
   end
   local name = one_of({ "gres", "tres_per_job", "tres_per_task", "none" })
   job[name] = job[name] or GPU_FIELDS[name] and one_of(GPU_FIELDS[name])
   maybe(job, GPU_FIELDS, 12)
   job[one_of({ "min_mem_per_node", "min_mem_per_cpu", "no_memory" })] = one_of(NUMBERS)
   if job.no_memory then
      job.mem_per_tres = one_of(PER_GPU)
   end
   return job
end

-- Replies ------------------------------------------------------------------------------------------------

local VALUES = { 0, 1, 2, 3, 4, 8, 512, 8000, -1, 1.5, 1e18, "1", true, {}, { 1 } }
local LIKELY = { 1, 1, 2, 3 }
local DIMENSIONS = {
   "cpus_per_task", "gpus_per_node", "gpus_per_job", "gpus_per_task",
   "mem_per_node_mib", "mem_per_cpu_mib", "mem_per_gpu_mib", "wall",
}
local RUBBISH = {
   "", "{}", "[]", "nul", '{"v":1', "\0\255", string.rep("[", 5000), '{"v":1,"grant":{"wall":NaN}}',
}

local function random_reply(request)
   if math.random(10) == 1 then
      return one_of(RUBBISH)
   end
   local reply = { v = one_of({ 1, 1, 1, 1, 1, 1, 1, 1, 1, 2 }), id = request.id }
   reply.token = one_of({ "t:v1", "t", "t", "t", "t", "\n", 7 })
   local grant = {}
   for _, name in ipairs(DIMENSIONS) do
      if request.job[name] and math.random(2) == 1 or math.random(80) == 1 then
         grant[name] = math.random(12) == 1 and one_of(VALUES) or one_of(LIKELY)
      end
   end
   reply.grant = grant
   reply.message = one_of({ "m %s %d", "m", "", "", "\27[2J" })
   return codec.encode(reply)
end

-- The hook, with the wire recorded -----------------------------------------------------------------------

local request, answer, calls = nil, nil, 0

local function hear_request(line)
   local newline = line:find("\n", 1, true)
   assert(#line <= MAX_REQUEST_BYTES and newline == #line, "the request is not one line of 64 KiB")
   request, calls = codec.decode(line), calls + 1
end

local client = require("rightsizer.client")
local real_exchange = client.exchange

function client.exchange(...)
   local _, line = ...
   hear_request(line)
   local reply, reason
   if path then
      reply, reason = real_exchange(...)
   else
      reply = random_reply(request)
   end
   local decoded, value = pcall(codec.decode, reply or "")
   answer = decoded and type(value) == "table" and type(value.grant) == "table" and value.grant or {}
   return reply, reason
end

--- A new hook has a new breaker. The breaker is not tested here: with so many bad replies it would open.
local function new_hook()
   package.loaded["rightsizer.hook"] = nil
   local hook = require("rightsizer.hook")
   assert(hook.configure({ socket = path or "/nowhere", deadline_ms = DEADLINE_MS }))
   return hook
end

-- What must hold -----------------------------------------------------------------------------------------

--- The dimension that a field belongs to; tres_per_task and tres_bind may belong to either of two.
local MAY_CHANGE = {
   cpus_per_task = { "cpus_per_task" }, min_cpus = { "cpus_per_task" }, max_cpus = { "cpus_per_task" },
   pn_min_cpus = { "cpus_per_task" },
   gres = { "gpus_per_node" }, tres_per_job = { "gpus_per_job" }, tres_bind = { "gpus_per_task" },
   tres_per_task = { "cpus_per_task", "gpus_per_task" },
   min_mem_per_node = { "mem_per_node_mib" }, min_mem_per_cpu = { "mem_per_cpu_mib" },
   mem_per_tres = { "mem_per_gpu_mib" },
   SLURM_TRES_PER_TASK = { "cpus_per_task", "gpus_per_task" }, SLURM_TRES_BIND = { "gpus_per_task" },
   SLURM_GPUS_PER_NODE = { "gpus_per_node" }, SLURM_GPUS = { "gpus_per_job" },
   SLURM_GPUS_PER_TASK = { "gpus_per_task" }, SLURM_MEM_PER_GPU = { "mem_per_gpu_mib" },
   SRUN_CPUS_PER_TASK = { "cpus_per_task" },
}
local EXACT = {
   cpus_per_task = "cpus_per_task",
   min_mem_per_node = "mem_per_node_mib", min_mem_per_cpu = "mem_per_cpu_mib",
}

--- Whether two texts differ only in whole numbers, none of which grew or fell to zero.
local function check_text(name, old, new)
   assert(old:gsub("%d+$", "#"):gsub("%d+,", "#,") == new:gsub("%d+$", "#"):gsub("%d+,", "#,"),
      name .. " changed in more than its counts: " .. old .. " -> " .. new)
   local counts = {}
   for digits in old:gmatch("%d+") do
      counts[#counts + 1] = tonumber(digits)
   end
   local index = 0
   for digits in new:gmatch("%d+") do
      index = index + 1
      assert(tonumber(digits) <= counts[index], name .. " grew: " .. old .. " -> " .. new)
      assert(tonumber(digits) >= 1 or counts[index] == 0, name .. " fell to zero")
   end
end

local function check_write(name, old, new)
   local granted, asked = nil, nil
   for _, dimension in ipairs(MAY_CHANGE[name] or {}) do
      granted, asked = granted or answer[dimension], asked or request.job[dimension]
   end
   assert(granted and asked, name .. " was not asked for, or not granted")
   if type(new) == "number" then
      assert(old and new >= 1 and new < old and new == math.floor(new), name .. " is not smaller")
      assert(not EXACT[name] or new == answer[EXACT[name]], name .. " is not what was granted")
   else
      check_text(name, old, new)
   end
end

local function check_changes(job, changed)
   for name, value in pairs(changed) do
      if name == "environment" then
         for variable, text in pairs(value) do
            check_write(variable, job.environment[variable], text)
         end
      elseif name == "admin_comment" then
         local old = job.admin_comment or ""
         assert(value:sub(1, #old) == old, "admin_comment was overwritten")
      else
         check_write(name, job[name], value)
      end
   end
end

--- Every GPU grant is in the job in full, in the field that the user used, and min_cpus fits the CPUs a task.
local COUNTED = { gpus_per_node = "gres", gpus_per_job = "tres_per_job", gpus_per_task = "tres_per_task" }

local function check_granted(values)
   for dimension, granted in pairs(answer) do
      local field = COUNTED[dimension]
      local entry = field and ("," .. values[field] .. ","):match(",([^,]*gpu[^,]*),")
      local count = entry and (entry:match("[:=](%d+)$") or 1)
      assert(not field or tonumber(count) == granted, dimension .. " was not granted: " .. tostring(entry))
   end
   local tasks, cpus = values.num_tasks or NO_VAL, answer.cpus_per_task or NO_VAL
   local has_changed = cpus < (request.job.cpus_per_task or 0)
   local min_cpus = numbers.wide(values.min_cpus)
   if has_changed and min_cpus and tasks >= 1 and tasks < NO_VAL then
      assert(min_cpus == tasks * values.cpus_per_task, "min_cpus does not fit cpus_per_task")
   end
end

local FAILING = { "min_cpus", "gres", "tres_per_job", "admin_comment" }
local failing_field
local function fail_sometimes(name)
   if name == failing_field then
      failing_field = nil
      error("no such luck")
   end
end

local hook = new_hook()

--- What changed apart from the token of a decision that was not carried out; that token must name the reason.
local function without_refusal(job, changed, reason)
   local comment = changed.admin_comment
   if not comment then
      return changed
   end
   local old, ending = job.admin_comment or "", ";refused=" .. reason
   assert(comment:sub(1, #old) == old, "admin_comment was overwritten")
   assert(comment:sub(-#ending) == ending, "a token that does not name the refusal: " .. comment)
   changed.admin_comment = nil
   return changed
end

local function check_round()
   local job = random_job()
   failing_field = math.random(5) == 1 and one_of(FAILING) or nil
   local proxy, values = fake_slurm.job_desc(job, fail_sometimes)
   slurm = fake_slurm.new()
   local done, reason = hook.submit(proxy, {}, 0)
   local changed = fake_slurm.differences(job, values)
   if not done then
      changed = without_refusal(job, changed, reason)
      assert(next(changed) == nil, "refused (" .. reason .. ") but changed: " .. tostring(next(changed)))
      local lines = #slurm.lines
      assert(#slurm.shown == 0 and (lines == 1 or lines == 2), "one line, two when it opens the breaker")
      hook = lines == 2 and new_hook() or hook
      return reason
   end
   check_changes(job, changed)
   check_granted(values)
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
assert(calls == rounds, "the service was not asked about every job")
assert(path or (outcomes.changed or 0) > rounds / 50, "too few jobs were changed to prove anything")
assert(not outcomes.internal_error and not outcomes.rollback_failed, "the hook caught an error of its own")
