"""The collector: what each GPU of a node does for which job, sampled through NVML into the GPU spool.

nvml          the one module that talks to NVML
processes     the one that reads /proc and Slurm's cgroups
attribution   whose a GPU is, from what those two say (pure)
windows       samples into spool lines (pure)
spool         the files, bounded in size
loop          one pass a second, until it is told to end
"""
