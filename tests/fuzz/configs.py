"""The site's configuration: anything invalid is a ConfigError that says where, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from accounting.errors import ConfigError
from slurm_plugin.config.file import known_keys, parse_config, render_config
from tests.fuzz.corpus import found, text_of
from tests.fuzz.target import Target

SHIPPED = Path(__file__).resolve().parents[2] / "etc" / "rightsizer.toml"
SOURCE = "site.toml"
# An error names the line that is no TOML, the unknown key, or the key whose value is wrong.
PLACES = ("not valid TOML", "unknown key `", "at `$", "Expected `")


def check(data: bytes) -> None:
    """Check that a configuration is parsed back from what it is rendered as."""
    try:
        config = parse_config(text_of(data), SOURCE)
    except ConfigError as error:
        check_told(str(error))
        return
    assert parse_config(render_config(config), SOURCE) == config


def check_told(told: str) -> None:
    """Check that an error names the file, and the place in it."""
    assert told.startswith(SOURCE)
    assert any(place in told for place in PLACES), told


def seeds() -> Iterator[bytes]:
    """Yield the shipped file table by table, and some configurations that use what it leaves out."""
    shipped = SHIPPED.read_text(encoding="utf-8")
    for table in shipped.split("\n["):
        lines = [line for line in f"[{table}".splitlines() if line and not line.startswith("#")]
        yield "\n".join(lines).encode()
    yield b'[[rules]]\nname = "r1"\npartition = ["a*", "b?"]\nmode = "enforce"\npercent = 10\nheadroom = 0.5\n'
    yield b'[[job_types]]\nname = "t"\njob_name = ["fit*"]\n[inputs]\nroots = ["/data", "/scratch/x"]\n'
    yield b"mode = 1979-05-27T07:32:00Z\n[energy]\ncarbon_g_per_kwh = [" + b"1.5, " * 24 + b"]\n"
    yield b'[train.dask]\ndirectives = ["--qos=low", """a\nb"""]\n[models.scaling]\nalpha = 0.3\n'
    yield from found("configs")


WORDS = (
    *(key.encode() for key in known_keys()),
    b"[[rules]]", b"[policy]", b" = true", b" = inf", b" = nan", b" = -0.0", b'"""', b"'''", b" = 0x10", b" = 1e400",
    b"\\u007f", b"\\U0001F600", b"[[[[", b"{a = 1}", b"1979-05-27",
)  # fmt: skip
TARGETS = (Target("configs", check, seeds, share=100, words=WORDS),)
