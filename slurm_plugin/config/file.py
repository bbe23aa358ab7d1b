"""Read and write the site's one configuration file, strictly: a typo is an error that names the nearest key.

The file is the path given, else $RIGHTSIZER_CONFIG, else /etc/rightsizer/rightsizer.toml. If there is none, the
defaults apply. settings.py holds the defaults and the schema.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from accounting.errors import ConfigError
from accounting.schema_hints import hint, nearest
from slurm_plugin.config.settings import Config, JobType, LentPartition, Rule, Section

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG_VARIABLE = "RIGHTSIZER_CONFIG"
SYSTEM_CONFIG = Path("/etc/rightsizer/rightsizer.toml")
# Tables that may occur several times.
REPEATED: dict[str, type[Section]] = {"rules": Rule, "job_types": JobType, "lent_partitions": LentPartition}


def config_path(given: str | None = None) -> Path | None:
    """Return the file to read: `given`, else $RIGHTSIZER_CONFIG, else the system's; None if only defaults apply."""
    named = given or os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    try:
        SYSTEM_CONFIG.lstat()  # not stat: a link that leads nowhere is a mistake to report
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass  # the file may exist but be hidden from this user: reading it reports that
    return SYSTEM_CONFIG


def load_config(given: str | None = None) -> Config:
    """Read and check the configuration.

    Raises ConfigError, which names the file and the key, if it is unreadable or malformed or has an unknown key.
    """
    path = config_path(given)
    if path is None:
        return Config()
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin with a byte order mark
    except OSError as error:
        fix = f"name another file with --config or ${CONFIG_VARIABLE}"
        if isinstance(error, PermissionError):
            fix = (
                "let this user, and the service's user, read it (chmod a+r, or chgrp and chmod g+r), or "
                f"{fix}"
            )
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}; {fix}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; compare it with etc/rightsizer.toml") from None
    return parse_config(text, source=str(path))


def parse_config(text: str, source: str = "configuration") -> Config:
    """Check TOML text against the schema; `source` names it in errors."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise ConfigError(
            f"{source} is not valid TOML: {error}; correct that line, then run `rightsizer config check`"
        ) from None
    refuse_unknown_keys(document, source)
    try:
        return msgspec.convert(document, Config)
    except msgspec.ValidationError as error:
        told = hint(error, Config) or "`rightsizer config show` prints every key with a valid value"
        raise ConfigError(f"{source}: {error}; {told}") from None


def refuse_unknown_keys(document: dict[str, Any], source: str) -> None:
    """Raise ConfigError for the first key that the schema does not know; the error names the nearest known key."""
    known = known_keys()
    for key in given_keys(document):
        if key not in known:
            told = nearest(key, known) or "`rightsizer config show` lists all keys"
            raise ConfigError(f"{source}: unknown key `{key}`; {told}")


def given_keys(table: dict[str, Any], prefix: str = "") -> list[str]:
    """List every key of a document as `key`, `section.key` or `section.section.key`, outer keys first."""
    keys = [f"{prefix}{name}" for name in table]
    for name, value in table.items():
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                keys += given_keys(inner, f"{prefix}{name}.")
    return keys


def known_keys(schema: type[Section] | None = None, prefix: str = "") -> list[str]:
    """List every key of the schema as `key`, `section.key` or `section.section.key`."""
    keys: list[str] = []
    for field in msgspec.structs.fields(schema or Config):
        keys.append(f"{prefix}{field.name}")
        section = field.type if prefix else REPEATED.get(field.name, field.type)
        if isinstance(section, type) and issubclass(section, Section):
            keys += known_keys(section, f"{prefix}{field.name}.")
    return keys


def render_config(config: Config) -> str:
    """Return the TOML file that yields this configuration; a key without a value becomes a comment."""
    lines = [f'mode = "{config.mode}"']
    for section, table in msgspec.structs.asdict(config).items():
        if isinstance(table, Section):
            lines += _render_table(section, table)
    for name in REPEATED:
        for entry in getattr(config, name):
            lines += ["", f"[[{name}]]", *_render_section(entry)]
    return "\n".join(lines) + "\n"


def _render_table(name: str, table: Section) -> list[str]:
    lines = ["", f"[{name}]", *_render_section(table)]
    for key, value in msgspec.structs.asdict(table).items():
        if isinstance(value, Section):
            lines += _render_table(f"{name}.{key}", value)
    return lines


def _render_section(table: Section) -> list[str]:
    return [
        f"# {key} =" if value is None else f"{key} = {_toml(value)}"
        for key, value in msgspec.structs.asdict(table).items()
        if not isinstance(value, Section)
    ]


def _toml(value: object) -> str:
    """Return a string, a number, a boolean or a list of them as TOML: as JSON, but with DEL escaped."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
