std = "lua51"
max_line_length = 110
-- Slurm puts this table into the script's globals and calls the two functions by name.
read_globals = { "slurm" }
files["lua/job_submit.lua"] = { globals = { "slurm_job_submit", "slurm_job_modify" } }
files["lua/cli_filter.lua"] = {
   globals = { "slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit" },
}
-- The tests play slurmctld.
files["tests/lua"] = { globals = { "slurm" }, read_globals = {
   "slurm_job_submit", "slurm_job_modify",
   "slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit",
} }
-- math.tointeger exists on 5.3 and later; numbers.lua asks before it uses it.
files["lua/rightsizer/numbers.lua"] = { read_globals = { math = { fields = { "tointeger" }, other_fields = true } } }
