"""Which files a batch script names as its input, read from its text alone. Pure: nothing is opened or looked up.

Words are read as a shell would quote them, but nothing that a shell would have to run is followed: a variable counts
only if the script itself sets it to plain text. A word with a glob, a command substitution or an unknown variable
(including the script's own arguments, which slurmctld does not show) is skipped. What a command writes (`>`, `-o`,
`of=`) is no input. Whether a file exists, and whose it is, is not known here: a word that names no file is simply not
found later.
"""

from __future__ import annotations

import functools
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

# Nobody writes more names than this by hand: then none is returned.
MOST_NAMED = 32
MOST_PATH_CHARS = 1024
# A longer line is data, not a command.
MOST_LINE_CHARS = 2048

_OPERATORS = ";&|()<>\n"
# On unquoted text the standard library is a hundred times as slow, with the same result (a test checks that).
_PLAIN_WORD = re.compile(r"[;&|()<>]+|[^ \t\r\n;&|()<>]+")
_QUOTES = re.compile(r"['\"\\]")
_SET = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VALUE = re.compile(r"-{0,2}([A-Za-z][\w-]*)=(.+)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_ODD = re.compile(r"[*?\[\]{}$`~\x00-\x1f]|://")
_LIKE_A_FILE = re.compile(r"/|\.\w")
_WRITTEN = re.compile(
    r"-{0,2}(?:o|of|out\w*|o[_-].*|output.*|log.*|te?mp.*|prefix|report.*|err(?:or)?)", re.IGNORECASE
)
# Words before a command, words that only set variables, and commands whose arguments are no input.
_BEFORE_COMMANDS = frozenset(("if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "exec"))
_SETTERS = frozenset(("export", "local", "declare", "readonly", "typeset"))
_NO_INPUT = frozenset(
    (
        "echo", "printf", "mkdir", "rm", "rmdir", "touch", "module", "ml", "source", ".", "unset", "set", "ulimit",
        "chmod", "chown", "ls", "test", "[", "[[", "exit", "return", "trap", "alias", "sleep", "which", "kill", "wait",
        "conda", "mamba", "hostname", "date", "fi", "done", "esac", "case",
    )
)  # fmt: skip
_LAST_IS_WRITTEN = frozenset(("cp", "mv", "ln", "rsync", "install"))


# The same script is submitted again and again.
@functools.lru_cache(maxsize=512)
def input_names(script: str, work_dir: str = "") -> tuple[str, ...]:
    """Return the absolute paths that a script names as input, each once; () also if there are too many.

    `work_dir` is where the script runs, '' if not known: names relative to it are then skipped. The script may be any
    text.
    """
    reader = _Reader(work_dir)
    for words in _commands(script):
        reader.read(words)
        if len(reader.names) > MOST_NAMED:
            return ()
    return tuple(reader.names)


class _Reader:
    """Reads a script's commands in order, and tracks what is set, the current directory, and the names so far."""

    def __init__(self, work_dir: str) -> None:
        self.folder = work_dir if work_dir.startswith("/") else ""
        self.names: dict[str, None] = {}
        self._values: dict[str, str] = {}

    def read(self, words: list[str]) -> None:
        """Read one command: its words, including redirections."""
        words = [*self._redirected(words)]
        while words and words[0] in _BEFORE_COMMANDS:
            words.pop(0)
        while words and (found := _SET.fullmatch(words[0])):
            self._set(found[1], found[2])
            words.pop(0)
        if not words:
            return
        command, *rest = words
        if command in _SETTERS:
            for found in filter(None, map(_SET.fullmatch, rest)):
                self._set(found[1], found[2])
        elif command in ("cd", "pushd"):
            self.folder = self._path(rest[-1]) if rest else ""
        elif command in ("for", "select", "read"):
            self._loop(command, rest)
        elif command not in _NO_INPUT:
            self._arguments_of(rest[:-1] if command in _LAST_IS_WRITTEN else rest)

    def _redirected(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the words without redirections; record files that are read by one."""
        each = iter(words)
        for word in each:
            if not word or word.strip("<>&|"):
                yield word
            elif word == "<":
                self._take(next(each, ""))
            else:
                next(each, None)

    def _loop(self, command: str, rest: Sequence[str]) -> None:
        """Forget the variables that a loop or `read` sets; record the words that a loop goes through."""
        names = rest[:1] if command != "read" else rest
        for name in names:
            self._values.pop(name, None)
        if command != "read":
            self._arguments_of(rest[2:])

    def _arguments_of(self, words: Sequence[str]) -> None:
        written = False
        for word in words:
            value = _VALUE.fullmatch(word)
            if value:
                if not _WRITTEN.fullmatch(value[1]):
                    self._take_all(value[2])
            elif not word.startswith("-") and not written:
                self._take_all(word)
            written = word.startswith("-") and not value and _WRITTEN.fullmatch(word) is not None

    def _take_all(self, word: str) -> None:
        for part in word.split(",")[: MOST_NAMED + 1]:
            if _LIKE_A_FILE.search(self._expanded(part) or ""):
                self._take(part)

    def _take(self, word: str) -> None:
        path = self._path(word)
        if path and path != self.folder and len(self.names) <= MOST_NAMED:
            self.names[path] = None

    def _set(self, name: str, value: str) -> None:
        text = self._expanded(value)
        if text is None or len(text) > MOST_PATH_CHARS:
            self._values.pop(name, None)
        else:
            self._values[name] = text

    def _expanded(self, word: str) -> str | None:
        """Return a word with its variables replaced; None if one is not known, or the word is too long."""
        if "$" not in word:
            return word
        if len(word) > MOST_PATH_CHARS:
            return None
        text = _VARIABLE.sub(lambda found: self._values.get(found[1] or found[2], "$"), word)
        return None if "$" in text or len(text) > MOST_PATH_CHARS else text

    def _path(self, word: str) -> str:
        """Return the absolute path that a word stands for; '' if it is not known."""
        text = self._expanded(word)
        if not text or len(text) > MOST_PATH_CHARS or _ODD.search(text):
            return ""
        if not text.startswith("/"):
            if not self.folder:
                return ""
            text = f"{self.folder}/{text}"
        return posixpath.normpath(text[:1] + text.lstrip("/"))


def _commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each command, including redirections."""
    for line in _lines(script):
        command: list[str] = []
        for word in _words(line):
            if word and not word.strip(_OPERATORS) and not _is_redirection(word):
                yield command
                command = []
            else:
                command.append(word)
        yield command


def _is_redirection(word: str) -> bool:
    return ("<" in word or ">" in word) and not set(word) & set("();\n")


def _lines(script: str) -> Iterator[str]:
    """Yield the lines that hold commands, continued lines joined; the text of here-documents is left out."""
    until = ""
    for line in script.replace("\\\n", " ").splitlines():
        if until:
            until = "" if line.strip() == until else until
        elif not line.lstrip().startswith("#") and len(line) <= MOST_LINE_CHARS:
            found = _HEREDOC.search(line) if "<<" in line and "<<<" not in line else None
            until = found[2] if found else ""
            yield line


def _words(line: str) -> list[str]:
    """Return a line's words and operators, unquoted, up to a comment; [] if its quotes do not close."""
    words = shell_words(line) if _QUOTES.search(line) else _PLAIN_WORD.findall(line)
    # A quoted `#` looks the same here: what follows it is skipped.
    comment = next((place for place, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def shell_words(line: str) -> list[str]:
    """Return a line's words and operators as the standard library parses a shell's; [] if quotes do not close."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS.strip())
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return []
