"""Which files a script names as its input: decided from its words alone, for any text."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_plugin.policy import script_inputs
from slurm_plugin.policy.script_inputs import MOST_NAMED, MOST_PATH_CHARS, input_names, shell_words

SLOW_S = 0.25  # of processor time; such a text takes a few milliseconds


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("fit /data/a.csv /data/b.csv", ["/data/a.csv", "/data/b.csv"]),
        ("fit /data/a.csv /data/./a.csv /data//a.csv", ["/data/a.csv"]),
        ("fit --in=/data/a.csv --k=3", ["/data/a.csv"]),
        ("fit --in /data/a.csv", ["/data/a.csv"]),
        ("picard I=/data/in.bam O=/data/out.bam", ["/data/in.bam"]),
        ("hisat -1 /d/a.fq,/d/b.fq", ["/d/a.fq", "/d/b.fq"]),
        ("sort < /data/a.csv > /data/b.csv", ["/data/a.csv"]),
        ("sort</data/a.csv>/data/b.csv 2>>/data/err", ["/data/a.csv"]),
        ("fit /d/a.csv &> /d/log; wc /d/b.csv 2>&1 | tee", ["/d/a.csv", "/d/b.csv"]),
        ("fit '/data/my file.csv' \"/data/b c.csv\"", ["/data/my file.csv", "/data/b c.csv"]),
        ("fit /data/my\\ file.csv", ["/data/my file.csv"]),
        ("fit --k 3 \\\n  /data/a.csv", ["/data/a.csv"]),
        ("A=/data\nexport B=$A/x.csv\nfit ${B}", ["/data/x.csv"]),
        ("A=$(ls /data/z.csv)\nfit $A", []),
        ("A=/data/a.csv; A=$HOME; fit $A", []),
        ("for f in /d/a.csv /d/b.csv; do fit $f; done", ["/d/a.csv", "/d/b.csv"]),
        ("f=/d/z.csv\nfor f in /d/a.csv; do fit $f; done", ["/d/a.csv"]),
        ("read f\nfit $f", []),
        ('fit $1 "$@" $UNSET/a.csv `ls /d/a` /d/*.csv /d/{a,b}.csv ~/a.csv http://h/a.csv', []),
        ("# fit /data/a.csv\nfit # /data/b.csv", []),
        ("#SBATCH -o /data/log\nfit", []),
        ("cat <<EOF\nfit /data/a.csv\nEOF\nfit /data/b.csv", ["/data/b.csv"]),
        ("cat <<'X' > /d/o\n/d/a.csv\nX\nfit <<< /d/c.csv", []),
        ("samtools sort -o /d/out.bam /d/in.bam --tmpdir /d/tmp", ["/d/in.bam"]),
        ("mkdir -p /d/x; rm /d/y; echo /d/z; source /d/env.sh; module load /d/m", []),
        ("cp /d/a.csv /scratch/a.csv", ["/d/a.csv"]),
        ("/opt/bin/fit /d/a.csv", ["/d/a.csv"]),
        ("if ! fit /d/a.csv; then run /d/b.csv; fi", ["/d/a.csv", "/d/b.csv"]),
        ("join <(sort /d/a.csv) <(sort /d/b.csv)", ["/d/a.csv", "/d/b.csv"]),
        ("fit ../a.csv a.csv all 3 < plain", ["/home/ann/plain", "/home/a.csv", "/home/ann/a.csv"]),
        ("cd /data/run && fit a.csv\ncd $X\nfit b.csv", ["/data/run/a.csv"]),
        ("cd sub\nfit a.csv", ["/home/ann/sub/a.csv"]),
        ("awk 'unclosed /d/a.csv\nfit /d/b.csv", ["/d/b.csv"]),
    ],
)
def test_which_input_files_a_script_names(script: str, names: list[str]) -> None:
    assert list(input_names(script, "/home/ann")) == names


def test_relative_names_need_a_working_directory() -> None:
    assert input_names("fit a.csv /d/b.csv") == ("/d/b.csv",)
    assert input_names("fit a.csv /d/b.csv", "not/absolute") == ("/d/b.csv",)


def test_too_many_or_too_long_names_count_as_none() -> None:
    script = "fit " + " ".join(f"/d/{number}.csv" for number in range(MOST_NAMED))
    assert len(input_names(script)) == MOST_NAMED
    assert input_names(f"{script} /d/more.csv") == ()
    assert input_names("fit /" + "a" * MOST_PATH_CHARS) == ()


PIECES = st.sampled_from(
    [
        "a", "$a", "${a}", "$(", ")", "`", "'", '"', "\\", "\n", " ", ";", "&&", "|", "<", ">", "<<EOF\n", "EOF\n",
        "a=", "/d/x.csv", "../", "--in=", "-o ", "cd ", "for a in ", "export a=$a$a", "#", ",", "*", "\x00", "\x0c",
        "=", "é",
    ]
)  # fmt: skip
SCRIPTS = st.one_of(st.text(max_size=8192), st.lists(PIECES, max_size=2500).map("".join))


@given(SCRIPTS, st.sampled_from(["", "/home/ann", "x", "/" + "w" * 1023]))
@example("a=/d/x\n" + "a=$a$a\n" * 1100, "/w")
@example("\n".join(f"/d/{number} b c d" for number in range(700)), "/w")
@example("'\"" * 4096, "/w")
@example("a" + ",x.y" * 2047, "/w")
@example(("cd " + "b" * 500 + "\n") * 16, "/w")
@example("${" * 4096, "/w")
@example("<<<" * 2700, "")
def test_no_text_raises_an_error_or_takes_long(script: str, work_dir: str) -> None:
    input_names.cache_clear()
    begun_s = time.process_time()
    names = input_names(script, work_dir)
    assert time.process_time() - begun_s < SLOW_S
    assert len(names) <= MOST_NAMED
    assert len(set(names)) == len(names)
    for name in names:
        assert name.startswith("/")
        assert ".." not in name.split("/")
        assert "\x00" not in name


@given(st.text(alphabet="ab/.=$#;&|()<>, \t-", max_size=60))
def test_unquoted_text_is_split_like_the_standard_library_splits_it(line: str) -> None:
    found = shell_words(line)
    comment = next((place for place, word in enumerate(found) if word.startswith("#")), len(found))
    assert script_inputs._words(line) == found[:comment]
