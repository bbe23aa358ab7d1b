#!/bin/bash
cat /proc/self/cgroup; ls -d /run/systemd/system
export over='python3 -c "held = b\"1\" * 300 * 1024 * 1024"'
for d in /tmp/sb /tmp/sc; do rightsizer sandbox up --dir $d --nodes 2 --no-serve --no-hook 2>&1 | tail -2; done
find /sys/fs/cgroup -type d
for d in /tmp/sb /tmp/sc; do
(eval "$(rightsizer sandbox env --dir $d)"
sbatch --wait --mem=100 -o /tmp/out1 --wrap "$over"
sbatch --wait --mem=500 -o /tmp/out2 --wrap "cat /proc/self/cgroup; $over"
scontrol show jobs | grep -o 'JobState=[^ ]*'; sleep 3; sacct -P -o jobid,state,exitcode,maxrss; cat /tmp/out*); done
grep -h -i -E "error|fatal" /tmp/sb/log/slurmd-*.log | grep -v -i pmi
kill -9 $(pgrep -f "slurmd -D -N")
rightsizer sandbox down --dir /tmp/sb | tail -1; find /sys/fs/cgroup -type d
rightsizer sandbox down --dir /tmp/sc | tail -1; find /sys/fs/cgroup -type d; cat /sys/fs/cgroup/cgroup.subtree_control
python -m pytest -q -p no:cacheprovider tests/slurm_plugin/sandbox/test_scopes.py -rs 2>&1 | tail -20
echo "=== a container with a process that cannot be moved"
echo "+cpu +memory" > /sys/fs/cgroup/cgroup.subtree_control; mkdir /sys/fs/cgroup/ctr; echo $$ > /sys/fs/cgroup/ctr/cgroup.procs
cat > /tmp/inner.sh <<'I'
umount -l /sys/fs/cgroup; mount -t cgroup2 c /sys/fs/cgroup; cat /sys/fs/cgroup/cgroup.controllers
rightsizer sandbox up --dir /tmp/se --nodes 1 --no-serve --no-hook 2>&1 | tail -2
find /sys/fs/cgroup -type d; echo "sub: $(cat /sys/fs/cgroup/cgroup.subtree_control)"; echo $(cat /sys/fs/cgroup/cgroup.procs)
(eval "$(rightsizer sandbox env --dir /tmp/se)"; srun --mem=100 hostname)
rightsizer sandbox down --dir /tmp/se | tail -1
mount -o remount,ro /sys/fs/cgroup; rightsizer sandbox up --dir /tmp/se --nodes 1 --no-serve --no-hook 2>&1 | tail -2; rightsizer sandbox down --dir /tmp/se | tail -1
I
unshare -C -m -p --fork --mount-proc --propagation private bash /tmp/inner.sh
