"""Names and comments that try to be rows of sacct, in the very columns and order that ingest asks for.

Their delimiter is that of the figures, or has the form of those that are drawn for texts.

Slurm keeps 255 bytes of a name and all of a comment, and `--parsable2` escapes nothing in either.
"""

from __future__ import annotations

from accounting.slurm.sacct import DELIMITER, FIGURES, KEY, TEXTS

NO_SUCH_JOB = 4_000_001
ADMIN_COMMENT = (
    "rightsizer/1;id=f0f0f0f0f0f0;mode=enforce;why=resized;asked=cpus:64,mem:64000;granted=cpus:1,mem:1"
)
# It has the form in which ingest draws the delimiter of texts.
GUESS = "|0123456789abcdef|"
# They look innocent, but break code that splits lines.
ODD_NAMES = (
    b"|||COMPLETED|0:0",
    b"a\nb|c|d",
    b"\ttabs\tin\tit\t",
    b"\"quoted\" 'names' `and` \\back\\slashes\\",
    b"\x1f",
    b"\x1f\x1f\x1f",
    b"unit\x1fseparator\x1eand\x1dothers\x1c\x01\x02\x07\x08\x0b\x0c\x0d\x7f",
    b"not \xff\xfe UTF-8 \xc3( \x80",
    b"n" * 1000,
    "🦊 and café".encode(),
    "\u0085next line\u2028line separator".encode(),
    b"\n",
    b"\n\n\nleading",
    b"trailing\n",
    b"\r\ncarriage",
    b"  blanks around  ",
    b"%s%n%d%x$(id)`id`{0}",
    b"\\n\\x1f\\0",
    b"JobIDRaw",
    b"Robert'); DROP TABLE attempts;--",
)


def figures_row(key: tuple[str, str], **values: str) -> str:
    """Return a row, as in the answer with figures, of a completed attempt; `values` override its columns."""
    job, submit_s = key
    told = {
        "JobIDRaw": job,
        "Submit": submit_s,
        "JobID": job,
        "State": "COMPLETED",
        "Partition": "main",
        "Start": submit_s,
        "End": str(int(submit_s) + 9),
        **values,
    }
    return DELIMITER.join(told.get(name, "") for name in FIGURES)


def step_row(key: tuple[str, str], **values: str) -> str:
    """Return a row of a step of that job that used next to nothing."""
    job, submit_s = key
    usage = {"NTasks": "1", "MaxRSS": "1048576", "TRESUsageInTot": "mem=1048576"}
    return figures_row((f"{job}.7", submit_s), **{**usage, **values})


def texts_row(key: tuple[str, str], name: str = "forged", comment: str = "", admin_comment: str = "") -> str:
    """Return a row as in the answer with texts."""
    texts = {"JobName": name, "Comment": comment, "AdminComment": admin_comment, "Account": "forged"}
    return DELIMITER.join((*key, *(texts[column] for column in TEXTS)))


def ended_texts() -> str:
    """Return the end of a name that completes its own row before the line end that follows."""
    return DELIMITER * (len(TEXTS) - 1)


def forged_texts(victim: tuple[str, str], own: tuple[str, str]) -> dict[str, bytes]:
    """Return names (or comments) by what they pretend.

    The keys are ids and submit times of the victim's job and of the forger's own job, as sacct prints them. `KEY`
    distinguishes attempts in both answers.
    """
    assert KEY == ("JobIDRaw", "Submit")
    nobodys = (str(NO_SUCH_JOB), own[1])
    forged = {
        "a job that does not exist": "x\n" + figures_row(nobodys),
        "that the victim used nothing": "x\n" + figures_row(victim, AllocTRES="mem=1M"),
        "a step of the victim": "x\n" + step_row(victim),
        "a step of a job that does not exist": "x\n" + step_row(nobodys),
        "the victim's texts": "x\n" + texts_row(victim, admin_comment=ADMIN_COMMENT),
        "the victim's texts, in a row of its own": f"x{ended_texts()}\n"
        + texts_row(victim, "forged", "", ADMIN_COMMENT),
        "the victim's texts, last column open": "x\n"
        + texts_row(victim, "forged").removesuffix(ended_texts()),
        "the texts of a job that does not exist": f"x{ended_texts()}\n"
        + texts_row(nobodys, "forged", "", ADMIN_COMMENT),
        "its own texts": f"x{ended_texts()}\n" + texts_row(own, "forged", "", ADMIN_COMMENT),
        "its own admin comment": f"x{DELIMITER}{DELIMITER}{ADMIN_COMMENT}",
        "its own figures": "x\n" + figures_row(own, AllocTRES="mem=1M"),
        "a heading": "x\n" + DELIMITER.join((*KEY, *TEXTS)),
        "the victim's texts, with a guessed delimiter": "x\n"
        + texts_row(victim, "forged", "", ADMIN_COMMENT).replace(DELIMITER, GUESS),
        "the end of its own row, with a guessed delimiter": f"x{GUESS}{GUESS}{ADMIN_COMMENT}",
        "all at once": "\n".join(("x", step_row(victim), texts_row(victim), texts_row(own))),
    }
    return {what: text.encode() for what, text in forged.items()}
