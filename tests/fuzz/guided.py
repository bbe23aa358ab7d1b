"""One target in a process of its own, guided by coverage (atheris), or at random where atheris is not installed.

python -m tests.fuzz.guided TARGET INPUTS SEED FOLDER
"""

from __future__ import annotations

import importlib.util
import logging
import random
import sys
from pathlib import Path

# For an input that never returns. Wall clock, so it is generous: a busy machine is slow too.
HANG_S = 120
MOST_RSS_MIB = 6000


def main() -> int:
    """Run the target; afterwards, FOLDER holds what was found."""
    name, inputs, seed, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    logging.disable(logging.CRITICAL)
    if importlib.util.find_spec("atheris") is None:
        return at_random(name, inputs, seed, folder)
    return guided(name, inputs, seed, folder)


def at_random(name: str, inputs: int, seed: int, folder: Path) -> int:
    """Run a target on its seeds, damaged at random."""
    from tests.fuzz.mutate import mutated
    from tests.fuzz.target import Watch
    from tests.fuzz.targets import TARGETS

    target, draw = TARGETS[name], random.Random(seed)
    watch, seeds = Watch(target), [*target.seeds()]
    Watch(target).run(seeds[0])  # what is made at the first input, such as a model, is no input's time
    for _ in range(inputs):
        watch.run(mutated(seeds, target.words, target.most_bytes, draw))
    finish(watch, folder)
    return 0


def guided(name: str, inputs: int, seed: int, folder: Path) -> int:
    """Run a target with libFuzzer, which ends this process."""
    import atheris

    with atheris.instrument_imports(include=["accounting", "models", "slurm_plugin"]):
        from tests.fuzz.target import Watch
        from tests.fuzz.targets import TARGETS

        target = TARGETS[name]
        seeds = [*target.seeds()]
        Watch(target).run(seeds[0])  # modules imported late are instrumented too
    watch = Watch(target)
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(seeds):
        (corpus / f"seed-{number:04d}").write_bytes(one)
    words = folder / "words"
    words.write_text("".join(f'"{escaped(word)}"\n' for word in target.words), encoding="ascii")

    def one_input(data: bytes) -> None:
        watch.run(data)
        if watch.inputs % 1000 == 0 or watch.inputs >= inputs:
            finish(watch, folder)

    options = {
        "runs": inputs, "seed": seed, "max_len": target.most_bytes, "timeout": HANG_S, "rss_limit_mb": MOST_RSS_MIB,
        "dict": words, "artifact_prefix": f"{folder}/died-", "print_final_stats": 1,
    }  # fmt: skip
    atheris.Setup(
        [sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), str(corpus)], one_input
    )
    atheris.Fuzz()
    return 0


def escaped(word: bytes) -> str:
    """Return bytes as libFuzzer's dictionaries write them."""
    return "".join(f"\\x{byte:02x}" for byte in word)


def finish(watch: object, folder: Path) -> None:
    """Write down what a watch has seen so far."""
    import msgspec

    from tests.fuzz.target import Watch

    assert isinstance(watch, Watch)
    watch.write(folder)
    told = {"inputs": watch.inputs, "slowest_s": watch.slowest_s, "faults": [*watch.faults]}
    (folder / "told.json").write_bytes(msgspec.json.encode(told))


if __name__ == "__main__":
    sys.exit(main())
