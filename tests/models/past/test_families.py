"""Which jobs are alike."""

import hashlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.past.families import (
    GENERIC_NAMES,
    SCRIPT_BYTES,
    basis_of,
    cohort_key,
    describe_family,
    family_keys,
    renamed,
    rule_signature,
    runs_unseen,
    script_signature,
    signature_of,
    wide_keys,
)
from tests.builders import request

SCRIPT = "#!/bin/sh\nmodule load gcc\nsrun ./fit --seed 12 input_7.dat\n"


@pytest.mark.parametrize(
    "alike",
    [
        "#!/bin/bash\n#SBATCH -c 8\n#SBATCH --mem=1G\nmodule load gcc\nsrun ./fit --seed 12 input_7.dat",
        "#!/bin/sh\n\n  module   load\tgcc\n# a remark\n   # another\nsrun ./fit --seed 12 input_7.dat   \n\n",
        "#!/bin/sh\r\nmodule load gcc\r\nsrun ./fit --seed 12 input_7.dat\r\n",
        "#!/bin/sh\nmodule load gcc\nsrun ./fit --seed 999999 input_8.dat\n",
    ],
)
def test_comments_requests_blanks_and_numbers_do_not_change_a_signature(alike: str) -> None:
    assert script_signature(alike) == script_signature(SCRIPT) != ""


@pytest.mark.parametrize(
    "other", [SCRIPT.replace("fit", "sim"), SCRIPT.replace("gcc", "intel"), SCRIPT + "rm -r scratch\n"]
)
def test_other_commands_change_a_signature(other: str) -> None:
    assert script_signature(other) != script_signature(SCRIPT)


@pytest.mark.parametrize("empty", ["", "#!/bin/sh\n", "#!/bin/sh\n#SBATCH -c 8\n\n   \n# nothing"])
def test_a_script_that_does_nothing_has_no_signature(empty: str) -> None:
    assert script_signature(empty) == ""


@settings(max_examples=500)
@given(st.text(st.sampled_from("ab 019\t\n\r\x0b\x1c\x1f\x85\xa0\u0663\u2028#"), max_size=30))
def test_signatures_are_those_that_models_were_trained_with(script: str) -> None:
    lines = (re.sub(r"\s+", " ", line).strip() for line in script.splitlines())
    body = "\n".join(re.sub(r"\d+", "0", line) for line in lines if line and not line.startswith("#"))
    signature = hashlib.sha256(body.encode()).hexdigest()[:12] if body else ""
    assert script_signature(script) == signature


@given(
    st.text(max_size=80), st.lists(st.text(alphabet="abc 12#\t", max_size=12).map("#".__add__), max_size=5)
)
def test_a_comment_at_the_end_never_changes_a_signature(script: str, remarks: list[str]) -> None:
    assert script_signature("\n".join([script, *remarks])) == script_signature(script)


@given(st.text(max_size=40), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_number_never_changes_a_signature(script: str, one: int, other: int) -> None:
    assert script_signature(f"{script}\nx {one}") == script_signature(f"{script}\nx {other}")


def test_a_signature_is_taken_from_the_part_that_the_hook_sends() -> None:
    long = SCRIPT + "echo ä\n" * SCRIPT_BYTES
    sent = long.encode()[:SCRIPT_BYTES].decode(errors="ignore")
    assert script_signature(sent) == script_signature(long)


@pytest.mark.parametrize("begins", ["fit ", "fit  "])
def test_a_signature_does_not_depend_on_a_character_cut_in_two_or_an_invalid_one(begins: str) -> None:
    long = begins + "ä" * SCRIPT_BYTES
    sent = long.encode()[:SCRIPT_BYTES].decode(errors="ignore")
    assert script_signature(long) == script_signature(sent)
    assert script_signature(f"{begins}\udcff")


def test_a_job_belongs_to_the_family_of_its_script_first_and_of_its_name_next() -> None:
    keys = family_keys(request(job_name="fit_1", script_signature="ab12"))
    assert keys == (("user+name+script", "alice", "fit_#", "ab12"), ("user+name", "alice", "fit_#"))


@pytest.mark.parametrize(
    "name", [*sorted(GENERIC_NAMES), "Wrap", "job.sh", "", "python3", "/usr/bin/python3.11", "timeout", "R"]
)
def test_a_name_that_says_nothing_makes_no_family(name: str) -> None:
    assert family_keys(request(job_name=name)) == ()
    assert len(family_keys(request(job_name=name, script_signature="ab12"))) == 1


def test_families_of_different_users_never_meet() -> None:
    alice, bob = (request(user=user, job_name="fit", script_signature="ab") for user in ("alice", "bob"))
    assert not set(family_keys(alice)) & set(family_keys(bob))


def test_the_cohort_of_a_job_is_its_user() -> None:
    assert cohort_key(request()) == ("user", "alice")


def test_families_are_described_for_people() -> None:
    narrow, wide = family_keys(request(job_name="fit_1", script_signature="ab12"))
    assert describe_family(narrow) == "jobs of alice named fit_# and the same script"
    assert describe_family(wide) == "jobs of alice named fit_#"
    assert basis_of(1, describe_family(wide)) == "1 earlier job of alice named fit_#"
    assert basis_of(3, describe_family(wide)) == "3 earlier jobs of alice named fit_#"
    anybody = ["jobs of alice", "jobs of any user with the same limit"]
    assert list(map(describe_family, wide_keys(request(wall_s=3600)))) == anybody


UUID, OTHER_UUID = "fb315e06-46eb-480f-ae1d-c3d14c698bea", "00c05bdd-39af-40ab-ac80-8c1bc8a7ccc4"


def snakemake(wildcards: str, rules: str = "bwa_map", snakefile: str = "/home/ann/wf/Snakefile") -> str:
    """What snakemake-executor-plugin-slurm passes to sbatch --wrap (snakemake-interface-executor-plugins, real.py)."""
    return (
        "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n"
        f"/opt/py/bin/python3.12 -m snakemake --snakefile {snakefile} --target-jobs 'bwa_map:{wildcards}' "
        f"--allowed-rules {rules} --cores 8 --attempt 1 --force-use-threads --resources 'mem_mb=4000'\n"
    )


@pytest.mark.parametrize(
    ("script", "is_alike"),
    [
        (snakemake("sample=NA12878,unit=a"), True),
        (snakemake("sample=B", snakefile="'/home/ann/wf/Snakefile'"), True),
        (snakemake("sample=A", rules="bwa_map2"), False),
        (snakemake("sample=A", rules="bwa_map sort"), False),
        (snakemake("sample=A", snakefile="/home/ann/other/Snakefile"), False),
        (snakemake("sample=A").rstrip() + " --slurm-jobstep-array-execs=eyIyIjogIjc4ZGEifQ==", False),
        (snakemake("sample=A").rstrip() + " \\\n--slurm-jobstep-array-execs -", False),
    ],
)
def test_jobs_that_snakemake_names_by_a_uuid_are_told_apart_by_their_rule(
    script: str, is_alike: bool
) -> None:
    same = signature_of(OTHER_UUID, script) == signature_of(UUID, snakemake("sample=A"))
    assert same == is_alike


def test_rules_of_a_group_may_come_in_any_order() -> None:
    one, other = snakemake("s=A", rules="sort bwa_map"), snakemake("s=A", rules="bwa_map sort")
    assert rule_signature(one) == rule_signature(other) != ""


@pytest.mark.parametrize("name", ["bwa", "snakejob.bwa_map.12.sh", "fit_1"])
def test_jobs_that_people_name_keep_the_signatures_that_they_had(name: str) -> None:
    assert signature_of(name, snakemake("sample=A")) == script_signature(snakemake("sample=A"))


@pytest.mark.parametrize(
    "script",
    ["", SCRIPT, *(snakemake("s=A").replace(word, "x") for word in ("-m", "--snakefile", "--allowed"))],
)
def test_a_script_without_a_rule_is_told_apart_by_all_that_it_does(script: str) -> None:
    assert rule_signature(script) == ""
    assert signature_of(UUID, script) == script_signature(script)


MD5, OTHER_MD5 = "0cc175b9c0f1b6a831c399e269772661", "92eb5ffee6ae2fec3ad71c777531578f"
# What each tool writes, apart from what is fixed; {0} is what tells one run from another.
TOOLS = [
    # psij-python 0.9.11: slurm.mustache, by its `single` launcher.
    (
        "{0}.job",
        (
            '#!/bin/bash\n_PSIJ_PC=1\nexec &>> "/home/ann/.psij/work/slurm/$SLURM_JOB_ID.out"\n'
            "/bin/bash /home/ann/.psij/work/.packages/single_launch.sh {0} /home/ann/.psij/work/logs/{0}.log '' '' '' "
            "/dev/null /home/ann/fit.out /dev/null /home/ann/{1}\n"
        ),
    ),
    # signac-flow 0.29.1: base_script.sh.
    (
        "P/{0}/{1}/{0}",
        "set -e\nset -u\ncd /home/ann/project\n# {1}({0})\n/usr/bin/python3 project.py run -o {1} -j {0}\n",
    ),
    # batchtools 1196047: any of its templates for Slurm.
    ("job{0}", "Rscript -e 'batchtools::doJobCollection(\"/home/ann/{1}/jobs/job{0}.rds\")'\n"),
    # executorlib 1.11 with pysqa 1.1: SlurmClusterExecutor; the function's name, and a digest of its arguments.
    (
        "executorlib_cache",
        "/py/bin/python3 /py/executorlib/backend/cache_serial.py /home/ann/executorlib_cache/{1}{0}_i.h5\n",
    ),
    # cylc-flow 8.5.4: job_file.py.
    (
        "{1}.1.w/run1",
        'export CYLC_WORKFLOW_UUID="{0}"\ncylc__job__inst__script() {{\n./{1}\n}}\ncylc__job__main\n',
    ),
]


@pytest.mark.parametrize(("name", "script"), TOOLS)
@pytest.mark.parametrize(("one", "other"), [(UUID, OTHER_UUID), (MD5, OTHER_MD5)])
def test_jobs_of_a_tool_are_told_apart_by_what_it_runs_and_not_by_what_it_calls_them(
    name: str, script: str, one: str, other: str
) -> None:
    def narrowest(run: str, work: str) -> tuple[str, ...]:
        called = name.format(run, work)
        return family_keys(
            request(job_name=called, script_signature=signature_of(called, script.format(run, work)))
        )[0]

    assert narrowest(one, "fit") == narrowest(other, "fit")
    assert narrowest(one, "fit") != narrowest(one, "align")


# What these run is in a file that is written for one job.
UNSEEN = [
    # dpdispatcher 1.1.0: base_machine's script template.
    (".{0}.sub", 'cd "$REMOTE_ROOT"\nsource "$REMOTE_ROOT"/.{0}.sub.run\n'),
    # covalent-slurm-plugin 0.18.0: job_script.py.
    ("covalent-3-{0}", "srun \\\n  python /home/ann/script-{0}-3.py /home/ann/func-{0}-3.pkl\n"),
    # rslurm 0.6.2: submit_sh.txt; its jobs are called by a digest that R's tempfile makes.
    ("391e7714308d", "/usr/lib/R/bin/Rscript --vanilla slurm_run.R\n"),
    # future.batchtools 0.12.0: slurm.tmpl; a registry for each future.
    (
        "job{0}",
        "Rscript -e 'batchtools::doJobCollection(\"/d/.future/J8b8Of/batchtools_1/jobs/job{0}.rds\")'\n",
    ),
    ("fit-{0}", "module load gcc; . ./{0}.sh\n"),
    ("fit-{0}", "/bin/bash '{0}.sh'\n"),
    ("fit-{0}", "srun python3 -u script-{0}.py\n"),
    ("fit-{0}", "bash -e {0}.sh\n"),
    ("fit-{0}", "  exec ./run-{0}\n"),
    # Galaxy gives Pulsar only this file of the job's own folder.
    ("pulsar_4711", "/bin/bash /pulsar/staging/4711/tool_script.sh > /dev/null\n"),
]


@pytest.mark.parametrize(("name", "script"), UNSEEN)
@pytest.mark.parametrize("run", [UUID, MD5])
def test_jobs_that_run_files_of_their_own_are_not_taken_for_each_other(
    name: str, script: str, run: str
) -> None:
    assert signature_of(name.format(run), script.format(run)) == ""


@pytest.mark.parametrize(
    "script",
    [
        "bash /home/ann/{0}/run.sh {0}\n",  # as Nextflow and Cromwell lay out their folders
        "python3 project.py run -j {0}\n",
        "./fish {0}; mysource {0}\n",
        "cp a.sh {0}.sh\n",
        "Rscript --vanilla slurm_run_all.R {0}\n",
        "cat ./{0}.sh; # bash {0}.sh\n",
        "# bash run-{0}.sh\n./fit {0}\n",
        "bash -e fit.sh {0}\n",
    ],
)
def test_a_run_in_the_path_or_the_arguments_of_a_program_says_nothing_of_it(script: str) -> None:
    first, second = (signature_of(f"fit-{run}", script.format(run)) for run in (UUID, OTHER_UUID))
    assert first == second


@pytest.mark.parametrize(
    "name",
    [
        *("aiida-4711", "pi_4711", "pysqa", f"job{MD5}", "submitit", "FW_job", "dask-worker"),
        *("pilot.0000", f"P/bundle/{MD5}", "pulsar_4711", f"covalent-3-{UUID}", f".{MD5}.sub"),
        *("python-0", "sh-0", "gridjob"),
        *("MATLAB_R2024a_Job12", "MATLAB_R2025b_Job12.3"),
    ],
)
def test_a_name_that_a_tool_gives_to_whatever_it_runs_makes_no_family(name: str) -> None:
    assert family_keys(request(job_name=name, script_signature="")) == ()


def test_jobs_of_two_runs_are_one_family_and_a_uuid_alone_is_none() -> None:
    first, second = (
        request(job_name=name, script_signature=signature_of(name, snakemake(f"s={name[:2]}")))
        for name in (UUID, OTHER_UUID)
    )
    assert family_keys(first) == family_keys(second)
    assert len(family_keys(first)) == 1
    assert family_keys(request(job_name=UUID, script_signature="")) == ()


@pytest.mark.parametrize(
    ("stored", "now"),
    [
        (("user+name", "ann", "nf-bwa_(s#)"), ("user+name", "ann", "nf-bwa")),
        (("user+name+script", "ann", "nf-bwa_(#)", "ab12"), ("user+name+script", "ann", "nf-bwa", "ab12")),
        (("user+name", "ann", "fit_#"), ("user+name", "ann", "fit_#")),
        (("user", "nf-bwa_(s)"), ("user", "nf-bwa_(s)")),
        (("limit", "3600"), ("limit", "3600")),
        ((), ()),
    ],
)
def test_a_stored_family_gets_the_name_that_it_would_get_today(
    stored: tuple[str, ...], now: tuple[str, ...]
) -> None:
    assert renamed(stored) == now
    assert renamed(now) == now


@pytest.mark.parametrize(
    ("command", "is_unseen"),
    [
        ("bash", True),
        ("/bin/bash -l", True),
        ("python3.11 -u - 7 big", True),
        ("julia -t 8", True),
        ("R --no-save --quiet", True),
        ("nice -n 5 conda run -n env python3", True),
        ("apptainer exec image.sif bash -s", True),
        ("bash run.sh", False),
        ("sh -c ./fit", False),
        ("python3 fit.py -", False),
        ("python3 -m fit 7", False),
        ("python3 solve.py parallel", False),
        ("./fit", False),
        ("", False),
    ],
)
def test_an_interpreter_without_a_program_runs_what_it_reads(command: str, is_unseen: bool) -> None:
    assert runs_unseen(command) is is_unseen
