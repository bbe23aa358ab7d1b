"""Programs that divide up their job's resources, or in which somebody works, recognised by how scripts start them."""

import pytest

from slurm_plugin.policy.script_floors import read_floors

ALL = ["memory", "cores", "gpus"]
SNAKEMAKE = (
    "/opt/py/bin/python3 -m snakemake --snakefile '/d/Snakefile' --target-jobs 'align:s=a' --allowed-rules align "
    "--cores 'all' --attempt {attempt} --force-use-threads  --executor slurm-jobstep --jobs 1 --mode 'remote'"
)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("nextflow run nf-core/sarek -profile singularity", ["memory", "cores"]),
        ("./nextflow -c my.config run main.nf", ["memory", "cores"]),
        ("module load nextflow\n./run", []),
        ("cwltool --parallel flow.cwl in.yml", ["memory", "cores"]),
        ("cwltool flow.cwl in.yml", []),
        ("toil-cwl-runner --jobStore=j flow.cwl in.yml", ["memory", "cores"]),
        ("toil-wdl-runner --batchSystem single_machine flow.wdl", ["memory", "cores"]),
        ("toil-cwl-runner --batchSystem slurm flow.cwl", []),
        ("cactus ./js ./mammals.txt ./mammals.hal --maxCores 8", ["memory", "cores"]),
        ("singularity exec c.sif cactus-pangenome ./js ./x.txt --outDir o", ["memory", "cores"]),
        ("cactus-hal2maf ./js mammals.hal mammals.maf.gz --refGenome x", ["memory", "cores"]),
        ("cactus js mammals.txt mammals.hal --batchSystem slurm", []),
        ("cd cactus; cp -r cactus x; hal2maf cactus.hal x; ./mycactus a b.hal", []),
        ("ray start --head --num-cpus $SLURM_CPUS_PER_TASK --block &", ALL),
        ("python3 - <<X\nimport ray; ray.init(address='auto')\nX", ALL),
        ("dask worker --nthreads 1 $SCHEDULER", ["memory"]),
        ("srun dask-worker --memory-limit 4GB $SCHEDULER", ["memory"]),
        ("python3 - <<X\nfrom dask.distributed import LocalCluster\nLocalCluster()\nX", ["memory"]),
        ("mpirun -np 4 dask-mpi --scheduler-file s.json --nthreads 1 &", ["memory"]),
        ("python3 - <<X\nfrom dask_mpi import initialize\ninitialize()\nX", ["memory"]),
        ("dask scheduler; python3 dask_worker.py", []),
        ("srun --ntasks=2 ray symmetric-run --address $head:6379 --min-nodes 2 -- python3 a.py", ALL),
        ("xray start; ray stop; python3 train_ray.py", []),
        # As the providers of Parsl and dask-jobqueue, HyperQueue's allocator and FireWorks' launcher write them.
        ("cat << EOF > cmd.sh\nprocess_worker_pool.py  --max_workers_per_node=8 -a h -p 0 -c 1.0\nEOF", ALL),
        ("python3 - <<X\nparsl.load(Config(executors=[HighThroughputExecutor(label='h')]))\nX", ALL),
        ("/opt/bin/python -m distributed.cli.dask_worker tcp://h:1 --nthreads 4 --nanny", ["memory"]),
        ('RUST_LOG=info /opt/hq worker start --idle-timeout "5m" --manager "slurm" --server-dir "/d"', ALL),
        ("hq --server-dir /d worker start &", ALL),
        ("hq  --server-dir /d/hq/hq worker  start; hq hq worker start", ALL),
        ("hq server start & hq submit ./a; hq worker list", []),
        ("cd /home/ann; rlaunch -w /home/ann/my_fworker.yaml rapidfire --nlaunches 2", ALL),
        ("rlaunch singleshot", ALL),
        (f"rlaunch -w {'/config' * 15}/w.yaml -l {'/config' * 15}/my_launchpad.yaml rapidfire", ALL),
        ("qlaunch rapidfire", []),
        ("jf -fe execution run-batch /scratch/ann /scratch/ann/handle 0b6f -mj 5", ALL),
        ("jf -fe execution run /scratch/ann/ab/cd/ef", []),
        ("vine_worker -M my-manager --cores $SLURM_CPUS_ON_NODE", ALL),
        ("srun work_queue_worker host 9123", ALL),
        ("./glidein_startup.sh -v std -name gfactory", ALL),
        ("exec $CONDOR/sbin/condor_master -f", ALL),
        ("./runpilot2-wrapper.sh -q SITE", ALL),
        ("python dirac-pilot.py -S DIRAC", ALL),
        ("srun ipengine --profile-dir=p", ALL),
        # radical.pilot 1.103.2: pmgr/launching/base.py.
        (
            "/bin/bash -l /d/re.session.h.ann.0001/pilot.0000/bootstrap_0.sh -p pilot.0000 -s re.session -m local",
            ALL,
        ),
        # snakemake 9.27.1 with snakemake-executor-plugin-slurm 2.8.0, cylc-flow, ecFlow's usual head.h, Cromwell.
        (SNAKEMAKE.format(attempt=1), ["cores", "gpus"]),
        (SNAKEMAKE.format(attempt=2), [*ALL, "cores", "gpus"]),
        (SNAKEMAKE.format(attempt=12), [*ALL, "cores", "gpus"]),
        ("python3 -m snakemake --executor slurm --jobs 10; snakemake --cores 8 --attempts 3", []),
        ("    export CYLC_TASK_TRY_NUMBER=2\n", ALL),
        ("    export CYLC_TASK_TRY_NUMBER=1\n", []),
        ("export ECF_TRYNO=3  # Current try number of the task", ALL),
        ('export ECF_TRYNO="2"', ALL),
        ("ECF_TRYNO=1\nECF_TRYNO=", []),
        ("/bin/bash /d/cromwell-executions/wf/8d3c/call-sort/shard-3/attempt-2/execution/script", ALL),
        ("/bin/bash /d/cromwell-executions/wf/8d3c/call-sort/shard-3/execution/script", []),
        ("cd /home/ann/attempt-2 && ./fit --attempt 3", []),
        ("rsync -a /d/cromwell-executions/wf/8d3c/call-sort/attempt-2/execution/out.bam /d/results", []),
        ("with SlurmJobExecutor(max_workers=4) as exe:", ALL),
        ("python run_libe.py --comms local --nworkers 4", ALL),
        ("from libensemble import Ensemble", ALL),
        ("with SlurmClusterExecutor() as exe: pass", []),
        ("./bootstrap_0.sh; ls ~/libensemble; ./solve --comms fast", []),
        ("ipcluster start -n 8 & python3 a.py", ALL),
        ("CMQ_AUTH=abc R --no-save --no-restore -e 'clustermq:::worker(\"tcp://h:6124\")'", ALL),
        ("Rscript -e 'crew::crew_worker(settings = list())'", ALL),
        # merlin 1.13.0: its examples' workers.sbatch; qcg-pilotjob 0.14.2; balsam 0.7: script_template.py.
        ("merlin run slurm_par.yaml\nmerlin -lvl DEBUG run-workers slurm_par.yaml\nmerlin monitor", ALL),
        ("merlin run spec.yaml; merlin run-workflow a.yaml; echo run-workers", []),
        ("python3 -m qcg.pilotjob.service --file-path jobs.json", ALL),
        ("python3 - <<X\nfrom qcg.pilotjob.api.manager import LocalManager\nX", ALL),
        ("/py/bin/python3 /py/lib/site-packages/balsam/cmdline/launcher.py -j mpi -t 58", ALL),
        ("qcg-pm-service --file", ALL),
        # prefect 3.9.1, clearml-agent 3.0.3: their commands.
        ("prefect --profile hpc worker start --pool hpc --type process", ALL),
        ("prefect deploy; prefect work-pool create hpc; python prefect_worker.py start", []),
        ("srun clearml-agent execute --full-monitoring --id 0cc175b9c0f1b6a831c399e269772661", ALL),
        ("clearml-agent --config-file ~/c.conf daemon --queue gpu --foreground", ALL),
        ("pip install clearml-agent; clearml-agent list", []),
        ("ls qcg/ balsam/launcher.py; balsam job ls", []),
        ("celery -A tasks worker --concurrency=8", ALL),
        ("celery -A my.celery\t worker", ALL),
        ("./autopilot --pilot 3; my_worker 4; condor_submit a.sub; celery beat; ./xhq worker start", []),
    ],
)
def test_a_program_that_divides_up_its_job_keeps_it(body: str, kept: list[str]) -> None:
    floors = read_floors(f"#!/bin/sh\n{body}\n", 1)
    assert [dimension for dimension, _ in floors.kept] == kept
    assert not floors.session


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ("batchspawner-singleuser jupyterhub-singleuser --ip=0.0.0.0", True),
        ("srun /opt/hub/bin/batchspawner-singleuser /opt/hub/launch.sh --ip=0.0.0.0", True),
        ("jupyter lab --no-browser --port $(shuf -i 8000-9000 -n 1)", True),
        ("singularity exec j.sif jupyter-notebook --no-browser", True),
        ("/opt/conda/bin/jupyter-labhub", True),
        ("jupyter nbconvert --execute a.ipynb; papermill a.ipynb b.ipynb; ./jupyter-labs", False),
        ('create_yml () {\n  echo "Generating connection YAML file..."\n}\n"./script.sh" &', True),
        ("singularity exec rstudio.sif rserver --www-port 8787", True),
        ("module load rserver\nRscript rserver.R", False),
        ("code-server --auth none", True),
        ("cp code-server.tar.gz x; ls vncserver/; cat vncserver.log", False),
        ("code tunnel --accept-server-license-terms", True),
        ("vncserver :1 -geometry 1600x900", True),
        ("# jupyter lab\n./a", False),
    ],
)
def test_a_session_is_recognised_by_the_program_that_it_starts(body: str, session: bool) -> None:
    floors = read_floors(f"#!/bin/sh\n{body}\n", 1)
    assert (floors.session, floors.kept) == (session, ())
