"""The heap of a Java program that a script starts: what the script says of it, or whether it follows the job. Pure.

script_floors.py asks, and says what is kept for that.
"""

from __future__ import annotations

import re

# A Java process holds more than its heap: threads' stacks, code, buffers.
HEAP_OVERHEAD = 1.25
HEAP_OPTIONS = ("-Xmx", "-XX:MaxHeapSize=")
_SAYS = rf"(?:{'|'.join(HEAP_OPTIONS)})[\"']?"
HEAP = re.compile(rf"{_SAYS}(\d+[kKmMgGtT]?)\b")
HEAP_UNREAD = re.compile(rf"{_SAYS}[$`]")
HEAP_PERCENT = re.compile(r"-XX:(?:MaxRAMPercentage|MaxRAMFraction)=")
# Without any of these options, Java's heap is a quarter of what the job was given, if Java sees that. Where a command
# begins, a class or a variable may follow the name; elsewhere it may be a module's or a folder's (`module load java`).
_JAVA = re.compile(
    r"java(?<!\wjava)[\"']?[ \t]+-(?!-?version)"
    r"|(?:^|[;&|(])[ \t]*"
    r"(?:(?:then|do|else|exec|nice|nohup|srun|(?:/usr/bin/)?time)"
    r"(?:[ \t]+-[^\s;|&]{1,60}(?:[ \t]+\d[^\s;|&]{0,20})?){0,8}[ \t]+){0,3}"
    r"[\"']?(?:[\w./${}-]{0,200}/)?java[\"']?[ \t]+(?:[A-Za-z]|[\"']?[$@])",
    re.MULTILINE,
)
# Tools that start Java without a heap of their own.
_JAVA_TOOL_WORDS = ("gatk", "icard", "Trimmomatic")
_JAVA_TOOLS = re.compile(
    r"gatk(?<!\wgatk)[ \t]+(?:--java-options\b|[A-Z]\w{2,60}[ \t]+[-$])"
    r"|PicardCommandLine\b|picard-tools[ \t]+[A-Z]\w{2,60}[ \t]|Trimmomatic[PS]E\b"
)
# BBTools give it a share of SLURM_MEM_PER_NODE. Scripts of one's own have such names, but hardly such arguments.
_BBTOOLS = ("bbduk", "bbduk2", "bbmap", "bbmapskimmer", "bbmask", "bbmerge", "bbnorm", "bbsplit", "clumpify", "dedupe",
            "dedupe2", "reformat", "repair", "tadpole")  # fmt: skip
_BBTOOL = re.compile(rf"\b(?:{'|'.join(_BBTOOLS)})\.sh[ \t](?=[^\n;|&]{{0,400}}?\b(?:in1?|ref)=)")


def follows_its_job(body: str) -> bool:
    """Return whether a script, without its comments, starts Java with a heap that follows the memory of its job."""
    return not any(name in body for name in HEAP_OPTIONS) and _starts_java(body)


def _starts_java(body: str) -> bool:
    # Plain searches are ten times as fast.
    return (
        ("java" in body and bool(_JAVA.search(body)))
        or (any(word in body for word in _JAVA_TOOL_WORDS) and bool(_JAVA_TOOLS.search(body)))
        or (any(f"{tool}.sh" in body for tool in _BBTOOLS) and bool(_BBTOOL.search(body)))
    )
