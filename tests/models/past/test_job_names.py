"""What is left of a job's name: names that people choose stay apart, those of workflow engines come together."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.past.job_names import MACHINE_MADE, NAMELESS, is_by_machine, normal_name, without_machine_parts

UUID = "fb315e06-46eb-480f-ae1d-c3d14c698bea"
MD5 = "0cc175b9c0f1b6a831c399e269772661"

# What each engine gives sbatch as a job's name, read off its source at the commit named.
ENGINES = [
    # nextflow 2aad02f: AbstractGridExecutor.getJobNameFor, "nf-" and the task's name, which is "PROCESS (tag)" or
    # "PROCESS (index)" (TaskRun.getName); blanks, colons and slashes become "_", and 256 characters are kept.
    (
        "nf-NFCORE_RNASEQ_RNASEQ_ALIGN_STAR_STAR_ALIGN_(WT_REP1)",
        "nf-nfcore_rnaseq_rnaseq_align_star_star_align",
    ),
    ("nf-NFCORE_RNASEQ_RNASEQ_ALIGN_STAR_STAR_ALIGN_(17)", "nf-nfcore_rnaseq_rnaseq_align_star_star_align"),
    ("nf-BWA_MEM_(s1_(replicate_2))", "nf-bwa_mem"),
    ("nf-BWA_MEM_(a_tag_that_was_cut_o", "nf-bwa_mem"),
    ("nf-MULTIQC", "nf-multiqc"),
    # snakemake-executor-plugin-slurm cdc05f9: run_uuid, the same for all jobs of a run; with --slurm-jobname-prefix,
    # the prefix and "_" come before it. The rule is in the comment and in the script (test_families.py).
    (UUID, MACHINE_MADE),
    (f"atlas_{UUID}", "atlas_#"),
    # snakemake ead894b: cli.py, --jobname snakejob.{name}.{jobid}.sh, for --cluster and its successors.
    ("snakejob.bwa_map.12.sh", "snakejob.bwa_map.#"),
    # smk-simple-slurm, and many profiles like it: --job-name=smk-{rule}-{wildcards}.
    ("smk-bwa_map-sample=A,unit=1", "smk-bwa_map"),
    ("smk-bwa_map-sample=NA12878", "smk-bwa_map"),
    ("smk-multiqc-", "smk-multiqc-"),
    # cromwell c805f3c: SharedFileSystemAsyncJobExecutionActor.jobName, the first eight digits of the UUID.
    ("cromwell_fb315e06_align", "cromwell_#_align"),
    ("cromwell_12345678_align", "cromwell_#_align"),
    ("cromwell_1234abcd_align", "cromwell_#_align"),
    # galaxy 01ca66f: drmaa.py _job_name, "g", the job, the tool, and the user's address unless that is hidden.
    ("g12345_bwa_mem", "g#_bwa_mem"),
    ("g12345_bwa_mem_ann_example_org", "g#_bwa_mem_ann_example_org"),
    # toil 8593a3e: slurm.py, toil_job_{jobID}_{jobName}; names of CWL are paths (toil's pull request 2945).
    ("toil_job_4_CWLJob", "toil_job_#_cwljob"),
    ("toil_job_4_tools/picard/picard-BedToIntervalList.cwl", "picard-bedtointervallist.cwl"),
    # parsl b8b474c: parsl.{label}.block-{block_id} (status_handling.py), "." and time.time() (slurm.py).
    ("parsl.htex_Local.block-3.1672531200.1234567", "parsl.htex_local.block-#.#.#"),
    ("parsl.auto.1672531200.5", "parsl.auto.#.#"),
    # submitit e49d5e7, dask-jobqueue 49db60a, batchspawner 451dcf1, fireworks 7ceccf3: one name for all.
    ("submitit", "submitit"),
    ("dask-worker", "dask-worker"),
    ("spawner-jupyterhub", "spawner-jupyterhub"),
    ("FW_job", "fw_job"),
    # ondemand e5bbaf1: session.rb job_name, the portal's name and the app's, separated by slashes.
    ("sys/dashboard/sys/bc_jupyter", "bc_jupyter"),
    # matlab-parallel-slurm-plugin 95d98e9: MATLAB_R%s_Job%d, and .%d for independent tasks.
    ("MATLAB_R2024a_Job12", "matlab_r#a_job#"),
    ("MATLAB_R2024a_Job12.3", "matlab_r#a_job#.#"),
    # aiida-core 60eef76: aiida-{pk}; radical.pilot f9549f6: the pilot's id.
    ("aiida-4711", "aiida-#"),
    ("pilot.0000", "pilot.#"),
    # executorlib 1.11: spawner_pysqa.py, the folder above the task's own, which is its cache.
    ("executorlib_cache", MACHINE_MADE),
    # dpdispatcher 1.1.0: sbatch names a job after its script's file, which is named after a digest.
    (f".{MD5}.sub", MACHINE_MADE),
    # pulsar-app 0.16.0: DEFAULT_JOB_NAME_TEMPLATE.
    ("pulsar_4711", "pulsar_#"),
    # torchx 0.7.0: slurm_scheduler.py, the role, which utils.python and utils.sh call by their program.
    ("python-0", "python-#"),
    ("sh-0", "sh-#"),
    # covalent-slurm-plugin 0.18.0: slurm.py, the node of the graph, and the dispatch.
    (f"covalent-3-{UUID}", "covalent-#-#"),
    # batchtools 1196047: rnd_hash("job"), MD5.
    (f"job{MD5}", "job#"),
    # rslurm 0.6.2: R's tempfile, without its prefix.
    ("391e7714308d", MACHINE_MADE),
    # Airflow's run ids, where a DAG passes them on.
    ("align__manual__2026-01-01T00:00:00.123456+00:00", "align__manual__#-#-#t#:#:#.#+#:#"),
    # cylc-flow 8.5.4: slurm.py, task.cycle.workflow, where the workflow is a path that ends with its run's number.
    ("model.20260101T0000Z.forecast/run12", "model.#t#z.forecast"),
    ("post_proc.3.group/forecast/run1", "post_proc.#.group"),
    ("post-proc.20260101T0000+01.forecast", "post-proc.#t#+#.forecast"),
    # signac-flow 0.29.1: _generate_id, project/job/operation/digest, with several jobs an aggregate; bundles.
    (f"P/{MD5}/fit/{MD5[::-1]}", "fit"),
    (f"P/agg-{MD5}/fit/{MD5[::-1]}", "fit"),
    (f"P/bundle/{MD5}", "bundle"),
    # psij-python 0.9.11: sbatch names a job after its script's file, which is named after a UUID.
    (f"{UUID}.job", MACHINE_MADE),
    # Galaxy's tool ids end with a version; the job's name in Slurm has the tool's short id.
    ("toolshed.g2.bx.psu.edu/repos/devteam/bowtie2/bowtie2/2.3.4.3+galaxy0", "bowtie#/#.#.#.#+galaxy#"),
    ("toolshed.g2.bx.psu.edu/repos/iuc/rgrnastar/rna_star/2.6.0b-2", "rna_star/#.#.#b-#"),
    # reframe 4.10.4: rfm_, the test, and the first eight digits of its digest.
    ("rfm_stream_dfb9fb47", "rfm_stream_#"),
    # sbatch names a job after its script's file: mktemp's default, Python's tempfile.
    ("scratch/tmp.AbC3eFgHiJ", "tmp.#"),
    ("tmpa1b2c3d4.sh", "tmp#"),
    ("tmp4k_x9zqh", "tmp#"),
]
PEOPLE = [
    ("sim_v1", "sim_v#"),
    ("sim_v2", "sim_v#"),  # numbers have never counted: the script tells versions apart
    ("cafe2024", "cafe#"),
    ("abc12345", "abc#"),
    ("deadbeef", "deadbeef"),
    ("defaced_facade", "defaced_facade"),
    ("feb2024", "feb#"),
    ("20260101", "#"),
    ("20260101T120000Z", "#t#z"),
    ("fit_2026-01-01_12:00:00", "fit_#-#-#_#:#:#"),
    ("resnet50fpn3x", "resnet#fpn#x"),
    ("lr001bs32wd5", "lr#bs#wd#"),
    ("Run2D-SimV3", "run#d-simv#"),
    ("wgs30xhg38", "wgs#xhg#"),
    ("tmp_test_1", "tmp_test_#"),
    ("tmp_analysis", "tmp_analysis"),
    ("tmpanalysis", "tmpanalysis"),
    ("align_(sample_17)", "align_(sample_#)"),
    ("lr=0.1,bs=32", "lr=#.#,bs=#"),
    ("fit.1/run2", "run#"),
    ("data/v1.2/fit", "fit"),
    ("cromwell_latest", "cromwell_latest"),
    ("12", "#"),
    ("a.sbatch.sh", "a"),
]
ODD = [
    ("", NAMELESS),
    (NAMELESS, NAMELESS),
    ("/", MACHINE_MADE),
    ("runs/", "runs"),
    ("runs/Fit_012.sbatch", "fit_#"),
    (".sh", ".sh"),
    (".sh.slurm", ".sh"),
    (MD5, MACHINE_MADE),
    (f"12-{UUID}", MACHINE_MADE),
    (f"fit-{UUID.replace('-', '_')}.sh", "fit-#"),
    (f"fit_{UUID.upper()}", "fit_#"),
    ("build-1a2b3c4d", "build-#"),
    ("nf-a.sh_(x)", "nf-a"),
]
HOSTILE = (
    st.text()
    | st.text(st.sampled_from("abcdef0123456789-_"), max_size=120)
    | st.lists(
        st.sampled_from(
            [
                *(
                    UUID,
                    MD5,
                    "nf-",
                    "smk-",
                    "cromwell_",
                    "tmp",
                    "tmp.",
                    "_(",
                    ")",
                    "=",
                    "-",
                    "_",
                    ".",
                    "/",
                    "#",
                    " ",
                ),
                *(".sh", ".slurm", "job", "1a2b3c4d", "0", "\n", "é", "ß", "İ", "٣"),
            ]
        ),
        max_size=12,
    ).map("".join)
)


@pytest.mark.parametrize(("name", "normal"), ENGINES + PEOPLE + ODD)
def test_a_normal_name_keeps_only_what_runs_have_in_common(name: str, normal: str) -> None:
    assert normal_name(name) == normal


def test_a_quoted_name_is_the_same_to_the_hook_and_to_sacct() -> None:
    assert normal_name('fit "a" 12') == normal_name("fit `a` 13") == "fit `a` #"


@pytest.mark.parametrize(("name", "_normal"), PEOPLE)
def test_names_that_people_write_are_not_taken_for_those_of_machines(name: str, _normal: str) -> None:
    assert not is_by_machine(name)
    assert without_machine_parts(name) == name


@given(
    st.uuids(version=4), st.sampled_from(["{}", "atlas_{}", "cromwell_{:.8}_align", "fit.{}.sh", "nf-A_({})"])
)
def test_every_run_of_an_engine_has_the_same_name(one: object, form: str) -> None:
    assert normal_name(form.format(str(one))) == normal_name(form.format(UUID))
    assert is_by_machine(form.format(str(one)))


@given(HOSTILE)
@example("a.slurm.sh")
@example("nf-.sh_(")
@example("a/b/1.2+galaxy0")
@example("/1.2")
def test_a_normal_name_stays_as_it_is_and_is_never_empty(name: str) -> None:
    normal = normal_name(name)
    assert normal_name(normal) == normal
    assert normal
    assert normal_name(without_machine_parts(name)) == normal


@pytest.mark.parametrize(
    "part",
    [
        "a1",
        "_(",
        "-a",
        ".sh",
        "abcdef0123456789-",
        "fb315e06-",
        "smk-a-",
        "0",
        "f",
        "nf-_",
        "=",
        "tmp.",
        "/",
        "/run1",
        f"/{MD5}",
        "/1.2",
        ".2",
        "+a1",
    ],
)
@pytest.mark.parametrize("front", ["", "nf-", "smk-", "tmp", "cromwell_", "t.1.", "t.1.w"])
def test_a_name_of_a_million_characters_is_read_at_once(front: str, part: str) -> None:
    """Anything that is not linear in the length of the name would take hours here."""
    assert normal_name(front + part * (10**6 // len(part)) + "!")
