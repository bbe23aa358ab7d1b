"""The collector: samples what each GPU of a node does for which job, through NVML, into the GPU spool.

nvml          the only module that talks to NVML
processes     the only module that reads /proc and Slurm's cgroups
attribution   which job a GPU belongs to, from what those two say (pure)
windows       turns samples into spool lines (pure)
spool         the files, bounded in size
loop          one pass a second, until stopped
"""
