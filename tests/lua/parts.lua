--- Checks the pure parts one by one, in plain Lua. Usage: lua parts.lua HERE LUA_FOLDER
package.path = arg[1] .. "/?.lua;" .. arg[2] .. "/?.lua;" .. package.path
local fake_slurm = require("fake_slurm")
local frame = require("rightsizer.frame")
local job_desc = require("rightsizer.job_desc")
local limits = require("rightsizer.limits")
local numbers = require("rightsizer.numbers")
local plan = require("rightsizer.plan")
local tasks = require("rightsizer.tasks")
local text = require("rightsizer.text")
local tres = require("rightsizer.tres")
local users = require("rightsizer.users")
local writes = require("rightsizer.writes")

local function same(got, wanted, what)
   assert(got == wanted, string.format("%s: got %s, wanted %s", what, tostring(got), tostring(wanted)))
end

--- For each list of GPUs: how many it counts, and what it becomes with one GPU.
for request, counted in pairs({
   ["gres:gpu:2"] = { 2, "gres:gpu:1" },
   ["gres/gpu=3"] = { 3, "gres/gpu=1" },
   ["gpu:a-1.b_c:12"] = { 12, "gpu:a-1.b_c:1" },
   ["gres/gpu:a100=2"] = { 2, "gres/gpu:a100=1" },
   ["gpu"] = { 1, "gpu:1" },
   ["gres/gpu:a100"] = { 1, "gres/gpu:a100:1" },
   ["x:9,gres:gpu:4,,y"] = { 4, "x:9,gres:gpu:1,,y" },
}) do
   same(tres.gpus(request), counted[1], request)
   same(tres.with_gpus(request, 1), counted[2], request)
end
for _, request in ipairs({
   "gpu:x:0", "gpu:0", "gpu:9999999999", "shard:1", "", ",", "gres:gpu:1,gres:gpu:1", "gpu:1k", "gpu::2",
   "gpu:4:2", "gpu:a100:", "gpu: 2", "xgpu:2", "gpus:2", "gpu:2,GPU:2", "gpu:a b:2",
}) do
   same(tres.gpus(request), nil, request)
end
same(tres.gpus("gpu:999999999"), 999999999, "as many digits as are read")
same(tres.cpus("cpu=999999"), 999999, "and of CPUs")
same(tres.cpus("cpu=9999999"), 0, "no more")
same(tres.bound_per_task("gres/gpu:per_task:999999999"), 999999999, "and of a binding")
same(tres.memory_per_gpu("gres:gpu:2048"), 2048, "memory per GPU")
same(tres.memory_per_gpu("gres:gpu"), nil, "no memory")
same(tres.memory_per_gpu("gres:gpu:1,license:1"), nil, "memory of several")
same(tres.per_task("cpu=2,cpu=2"), nil, "CPUs twice")
same(tres.per_task("gres/gpu:2,cpu:3").gpus, 2, "GPUs of a task")
same(tres.per_task("gres/gpu:2,mem=3"), nil, "more than CPUs and GPUs")
same(tres.with_cpus("gres/gpu:1,cpu=8,license/a:1", 2), "gres/gpu:1,cpu=2,license/a:1", "cpus in the middle")
same(tres.cpus("gres/gpu:1"), nil, "no cpus")
same(tres.cpus("CPU=8"), 0, "cpus not understood")
same(tres.bind_per_task("gres/gpu:per_task:12", 3), "gres/gpu:per_task:3", "a binding")

--- What anybody may type, 128 KiB long: with time that grows by the square of the length this would not end.
for _, run in ipairs({ "1", "a", ":", "=", ",", "1:", "gpu:1", ",cpu=1", "gres/", " ", "\0", "\255" }) do
   local long = run:rep(math.floor(2 ^ 17 / #run))
   for _, head in ipairs({ "", "gpu:", "gpu:a:", "gres/gpu:", "gres:gpu=", "cpu=", "gres/gpu:per_task:" }) do
      for _, tail in ipairs({ "", "x", ":", "=2" }) do
         local request = head .. long .. tail
         tres.gpus(request)
         tres.with_gpus(request, 1)
         tres.memory_per_gpu(request)
         tres.per_task(request)
         tres.cpus(request)
         tres.with_cpus(request, 1)
         tres.bound_per_task(request)
      end
   end
end

--- The sentinels are those that Slurm shows to Lua.
local slurm_names = fake_slurm.new()
same(numbers.narrow(slurm_names.NO_VAL16), nil, "NO_VAL16")
same(numbers.wide(slurm_names.NO_VAL), nil, "NO_VAL")
same(numbers.narrow(slurm_names.NO_VAL16 - 1), 65533, "the largest of 16 bits")

--- How many tasks the client had in mind, as the releases show it.
for _, case in ipairs({
   { 4, num_tasks = 4, cpus_per_task = 4, min_cpus = 16, min_nodes = 2 },
   { 2, cpus_per_task = 4, min_cpus = 8, min_nodes = 2 },
   { 2, cpus_per_task = 4, min_cpus = 8, ntasks_per_node = 2 },
   { 1, cpus_per_task = 2, min_cpus = 2, min_nodes = 1, ntasks_per_node = 2 },
   { 6, cpus_per_task = 2, min_nodes = 3, ntasks_per_node = 2 },
   { nil, num_tasks = 2, cpus_per_task = 2, min_cpus = 2, min_nodes = 1 },
   { nil, cpus_per_task = 4, min_cpus = 1 },
   { nil, min_cpus = 4 },
   { 3, cpus_per_task = 4, min_nodes = 3 },
}) do
   same(tasks.counted(case), case[1], "tasks of min_cpus " .. tostring(case.min_cpus))
end

same(text.cut("xx\240\159\152\128", 6), "xx\240\159\152\128", "as long as it may be")
same(text.cut("xx\240\159\152\128", 5), "xx", "cut inside a character")
same(text.cut("\128\128\128\128\128\128", 3), "", "nothing but continuations")
same(text.cut(("\128"):rep(10), 6), ("\128"):rep(3), "no further back than a character goes")
same(text.is_displayable("a\128b"), false, "a lone continuation")
for _, shown in ipairs({ "\194\160", "\224\160\128", "\226\130\172", "\240\144\128\128" }) do
   same(text.is_displayable(shown), true, "the first of each length, and one between")
end
for _, broken in ipairs({
   "\193\191", "\245\128\128\128", "\195", "\226\130", "\240\144\128", "\226\130\172\128", "\224\159\191",
}) do
   same(text.is_displayable(broken), false, "no character")
end
same(text.is_displayable("\244\143\191\191"), true, "the last code point")
same(text.is_displayable("\237\160\128"), false, "a surrogate")
same(text.is_displayable("\195\169\169"), false, "a character, then rubbish")
same(text.is_displayable("a\0b"), false, "NUL")
same(text.is_displayable("größe"), true, "letters")

local seen = {}
for _ = 1, 1000 do
   local id = frame.new_id(1700000000.25)
   assert(#id == 16 and not seen[id], "an id came twice")
   seen[id] = true
end

--- The user directory is asked once in ten minutes for a uid, and every time for a uid that it does not know.
local real_time = os.time
local directory, looks, now_s = { [1] = "ada", [2] = "bob" }, 0, 1000
os.time = function() -- luacheck: ignore 122
   return now_s
end
local function name_of(uid)
   local before = looks
   local name = users.name(setmetatable({}, {
      __index = function(_, field)
         same(field, "user_name", "the field")
         looks = looks + 1
         return directory[uid]
      end,
   }), uid)
   return name, looks - before
end
local function same_name(uid, wanted, wanted_looks, what)
   local name, looked = name_of(uid)
   same(name, wanted, what)
   same(looked, wanted_looks, what .. ": looks")
end
same_name(1, "ada", 1, "the first time")
same_name(2, "bob", 1, "another user")
same_name(1, "ada", 0, "again")
same_name(3, nil, 1, "nobody's")
same_name(3, nil, 1, "nobody's still")
same(users.name({ user_name = "ada" }, nil), "ada", "without a uid")
same(users.name({ user_name = "bob" }, nil), "bob", "which could be anybody's")
directory[3] = "eve"
same_name(3, "eve", 1, "a user that is new")
now_s = now_s + 599
same_name(1, "ada", 0, "while it holds")
now_s = now_s + 1
same_name(1, "ada", 1, "ten minutes later")
now_s = now_s - 1
same_name(1, "ada", 1, "a clock that was set back")
for uid = 10, 10 + 4095 do
   directory[uid] = "many"
   name_of(uid)
end
same_name(1, "ada", 1, "more users than are remembered")
os.time = real_time -- luacheck: ignore 122

--- Any write may be the one that fails: everything written before it is put back.
local JOB = {
   cpus_per_task = 8, num_tasks = 2, min_cpus = 16, pn_min_cpus = 8, min_mem_per_node = 8000, script = "x",
   gres = "gres:gpu:4", tres_per_task = "cpu=8", environment = { SLURM_TRES_PER_TASK = "cpu=8" },
}
local DECISION = {
   grant = { cpus_per_task = 2, mem_per_node_mib = 512, gpus_per_node = 1 },
   token = "t",
}
for failing = 1, 9 do
   local count = 0
   local proxy, values = fake_slurm.job_desc(JOB, function()
      count = count + 1
      assert(count ~= failing, "this write fails")
   end)
   local ask = job_desc.read(proxy, {})
   local list = assert(plan.writes(proxy, ask, DECISION))
   local applied, reason = writes.apply(list, proxy)
   local changed = fake_slurm.differences(JOB, values)
   if failing <= 7 then
      same(reason, "write_failed", "write " .. failing)
      same(next(changed), nil, "left over after write " .. failing)
   else
      same(applied, true, "no write failed")
      same(changed.environment.SLURM_TRES_PER_TASK, "cpu=2", "environment")
      same(changed.gres, "gres:gpu:1", "gres")
   end
end

--- If not even that is possible, the reason says so.
local first_alone = true
local stubborn = fake_slurm.job_desc(JOB, function()
   assert(first_alone, "no write after the first")
   first_alone = false
end)
local _, stuck = writes.apply(assert(plan.writes(stubborn, job_desc.read(stubborn, {}), DECISION)), stubborn)
same(stuck, "rollback_failed", "what was written stays")

--- The word that a direct job's client left is removed even if nothing is carried out; a batch job's comment
-- stays.
for is_batch, comment in pairs({ [false] = "mine", [true] = "mine rightsizer-cli=0123456789ab" }) do
   local values = { comment = "mine rightsizer-cli=0123456789ab" }
   writes.apply(plan.refusal(values, { batch = is_batch }, { token = "t;granted=mem:1" }, "why"), values)
   same(values.comment, comment, "the comment of a refused job")
   same(values.admin_comment, "t;would=mem:1;refused=why", "its token")
end

--- Memory per node has to fit the CPUs that remain, in every partition that the job may go to.
local PARTITIONS = { main = { flag_default = 1 }, lim = { max_mem_per_cpu = 2000, flag_default = 0 } }
same(limits.allow(PARTITIONS, nil, 8000, 1), true, "the default partition has no limit")
same(limits.allow(PARTITIONS, "main", 8000, 1), true, "nor when named")
same(limits.allow(PARTITIONS, "main,lim", 8000, 1), false, "one of two")
same(limits.allow(PARTITIONS, "lim", 8000, 4), true, "enough CPUs")
same(limits.allow(nil, "lim", 8000, 1), true, "no partitions known")
local function default_with(limit_mib)
   return { main = { max_mem_per_cpu = limit_mib, flag_default = 1 } }
end
same(limits.allow(default_with(2000), nil, 8000, 1), false, "the default one has a limit")
same(limits.allow(default_with(0), nil, 8000, 1), true, "0 limits nothing")
local limited = { batch = true, partition = "lim", cpus_per_task = 8, mem_per_node_mib = 8000 }
local _, misfit = plan.writes({}, limited, { grant = { cpus_per_task = 2 } }, PARTITIONS)
same(misfit, "memory_per_cpu_limit", "CPUs alone")
local many = { partition = ("main,"):rep(300) .. "lim" }
local sent = many.partition:sub(1, 1024)
local cut = { batch = true, partition = sent, cpus_per_task = 8, mem_per_node_mib = 8000 }
_, misfit = plan.writes(many, cut, { grant = { cpus_per_task = 2 } }, PARTITIONS)
same(misfit, "memory_per_cpu_limit", "the last of more than go over the wire")
local both = { cpus_per_task = 2, mem_per_node_mib = 4000 }
same(type(plan.writes({}, limited, { grant = both }, PARTITIONS)), "table", "CPUs and memory")
for what, case in pairs({
   ["no memory per node"] = { { mem_per_cpu_mib = 8000 }, { cpus_per_task = 2 } },
   ["CPUs of all its tasks"] = { { mem_per_node_mib = 8000, ntasks_per_node = 2 }, { cpus_per_task = 2 } },
   ["CPUs that stay"] = { { mem_per_node_mib = 99999 }, { cpus_per_task = 8, mem_per_node_mib = 88888 } },
}) do
   local ask = case[1]
   ask.batch, ask.partition, ask.cpus_per_task = true, "lim", 8
   same(type(plan.writes({ cpus_per_task = 8 }, ask, { grant = case[2] }, PARTITIONS)), "table", what)
end

--- The client over a socket made of tables: `clock` gives the times, `peer` what each call returns.
local function exchange_with(clock, peer)
   peer.naps = 0
   package.loaded["socket"] = {
      gettime = clock,
      sleep = function(seconds)
         same(seconds, 0, "no longer than it must be")
         peer.naps = peer.naps + 1
      end,
   }
   package.loaded["socket.unix"] = function()
      local socket = { sent = "" }
      peer.is_open = true
      local waits_s
      function socket.settimeout(_, seconds, kind)
         assert(seconds >= 0 and kind == "t", "a timeout that waits for ever")
         waits_s = seconds
      end
      function socket.connect()
         return peer.connect == nil and 1 or nil, peer.connect
      end
      function socket.send(self, line, first)
         local last = math.min(#line, first + 2)
         self.sent = self.sent .. line:sub(first, last)
         if last < #line then
            return nil, "timeout", last
         end
         same(self.sent, line, "what was sent in pieces")
         self.sent = ""
         return last
      end
      function socket.receive(_, count)
         assert(count == 1 or waits_s == 0, "a wait for more than there is")
         return peer.receive(count)
      end
      function socket.close()
         peer.is_open = false
      end
      return socket
   end
   package.loaded["rightsizer.client"] = nil
   local reply, reason = require("rightsizer.client").exchange("/s", "a request\n", 25)
   same(peer.is_open or false, reply ~= nil, "kept where it answered, closed where it failed")
   return reply, reason
end

local function byte_then_rest(text_to_give)
   return function(count)
      if count == 1 then
         return text_to_give:sub(1, 1)
      end
      return nil, "timeout", text_to_give:sub(2)
   end
end

--- A clock that stands still between two calls must not look as if it had been set back.
for tick = 1, 2000 do
   local reply = exchange_with(function()
      return 1763667141.123457 + tick * 1e-6
   end, { receive = byte_then_rest("yes\n") })
   same(reply, "yes", "a clock that stands still")
end

local function clock_with_steps(...)
   local times, calls = { ... }, 0
   return function()
      calls = calls + 1
      return times[math.min(calls, #times)]
   end
end

local _, set_back = exchange_with(clock_with_steps(1000, 1000, 900), { receive = byte_then_rest("yes\n") })
same(set_back, "deadline", "a clock set back by 100 s")
local _, late = exchange_with(clock_with_steps(1000, 1000.03), { receive = byte_then_rest("yes\n") })
same(late, "deadline", "no time left to connect")
local _, raised = exchange_with(clock_with_steps(1000), { receive = error })
same(raised, "socket_error", "a library that raises")
local _, endless = exchange_with(clock_with_steps(1000), { receive = byte_then_rest(string.rep("x", 8000)) })
same(endless, "reply_too_long", "a line without an end")
local _, refused = exchange_with(clock_with_steps(1000), { connect = "connection refused" })
same(refused, "connect_failed", "refused")

--- Work to be done while waiting is done only on a kept connection, and only if the answer is not there yet.
local function exchange_kept(receive)
   local peer, called, bytes = { receive = byte_then_rest("yes\n") }, 0, nil
   exchange_with(clock_with_steps(1000), peer)
   peer.receive = function(count)
      if not bytes then
         bytes = receive(called, peer.naps)
      end
      local given = bytes and bytes:sub(1, count)
      bytes = bytes and bytes:sub(count + 1)
      if given == nil or #given < count then
         return nil, "timeout", given
      end
      return given
   end
   local reply, reason = require("rightsizer.client").exchange("/s", "a request\n", 25, function()
      called = called + 1
      error("which is not noticed")
   end)
   return reply or reason, called, peer.naps
end
local there, times, naps = exchange_kept(function()
   return "an answer\n"
end)
same(there, "an answer", "an answer that is there at once")
same(times, 0, "nothing is done meanwhile")
same(naps, 0, "nor is a nap taken")
local soon, once = exchange_kept(function(called)
   return called > 0 and "an answer\n" or nil
end)
same(soon, "an answer", "an answer that comes meanwhile")
same(once, 1, "which is done once")
same((exchange_kept(function(_, taken)
   return taken > 0 and "an answer\n" or nil
end)), "an answer", "a service that can begin only when we sleep")
same((exchange_kept(function()
   return "\n"
end)), "", "an answer that is a line end")
same((exchange_kept(function() end)), "deadline", "no answer")
