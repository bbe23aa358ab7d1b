"""The paths of everything in a sandbox's folder. Pure: it names paths and creates none of them."""

from __future__ import annotations

import hashlib
import string
from dataclasses import dataclass
from pathlib import Path

# A Unix socket's path has at most 107 bytes. slurmd has one socket for each step; if it cannot create one, the job
# silently goes back to the queue. This path is that of the last node, for a batch script, after many jobs.
ROOT_BYTES_MAX = 107 - len("/state/kfwoa-64/kfwoa-64_999999.4294967291")
TAG_LETTERS = 5


@dataclass(frozen=True)
class Layout:
    """The paths of one sandbox; `root` is absolute and free of links, so that one folder has one name."""

    root: Path

    @property
    def tag(self) -> str:
        """A short word of letters that is derived from the folder's path.

        Slurm names its cgroup directories after nodes, so two sandboxes must never share a node name.
        """
        number = int.from_bytes(hashlib.sha256(str(self.root).encode()).digest()[:8], "big")
        letters: list[str] = []
        for _ in range(TAG_LETTERS):
            number, index = divmod(number, 26)
            letters.append(string.ascii_lowercase[index])
        return "".join(letters)

    @property
    def cluster(self) -> str:
        """The cluster's name in slurmdbd."""
        return f"sandbox-{self.tag}"

    def node_names(self, count: int) -> tuple[str, ...]:
        """Return the names of `count` nodes, such as `kfwoa-1`."""
        return tuple(f"{self.tag}-{number}" for number in range(1, count + 1))

    @property
    def manifest(self) -> Path:
        """The manifest; its presence marks the folder as a sandbox."""
        return self.root / "sandbox.json"

    @property
    def etc(self) -> Path:
        """Slurm's and our own configuration."""
        return self.root / "etc"

    @property
    def slurm_conf(self) -> Path:
        """Slurm's main file; Slurm looks for its other files next to it."""
        return self.etc / "slurm.conf"

    @property
    def rightsizer_toml(self) -> Path:
        """Our own configuration."""
        return self.etc / "rightsizer.toml"

    @property
    def bin(self) -> Path:
        """Small programs for users and their jobs."""
        return self.root / "bin"

    @property
    def wrappers(self) -> Path:
        """Scripts that run the Slurm of another root file system; exists only for such a prefix."""
        return self.root / "slurm"

    @property
    def devices(self) -> Path:
        """The device files of the simulated GPUs."""
        return self.root / "dev"

    @property
    def log(self) -> Path:
        """One log per daemon."""
        return self.root / "log"

    @property
    def run(self) -> Path:
        """Sockets and the records of started processes."""
        return self.root / "run"

    @property
    def munge_socket(self) -> Path:
        """The socket on which every user's commands reach this sandbox's own munged."""
        return self.run / "munge.sock"

    @property
    def mariadb_socket(self) -> Path:
        """MariaDB's local socket."""
        return self.run / "mariadb.sock"

    @property
    def service(self) -> Path:
        """The folder of the service's socket, and of nothing else: a user who may enter it may ask."""
        return self.root / "service"

    @property
    def service_socket(self) -> Path:
        """Where `rightsizer serve` answers the hook."""
        return self.service / "rightsizer.sock"

    @property
    def client_socket(self) -> Path:
        """Where `rightsizer serve --clients` answers the users' srun and salloc."""
        return self.run / "clients.sock"

    @property
    def secret(self) -> Path:
        """The folder of the munge key and the database's password, closed to other users."""
        return self.root / "secret"

    @property
    def munge_key(self) -> Path:
        """The key of this sandbox's munged."""
        return self.secret / "munge.key"

    @property
    def database_password(self) -> Path:
        """The password with which slurmdbd logs in to MariaDB."""
        return self.secret / "mariadb.password"

    @property
    def database_setup(self) -> Path:
        """The SQL that MariaDB runs at each start: it leaves slurmdbd's user as the only login."""
        return self.secret / "setup.sql"

    @property
    def database(self) -> Path:
        """MariaDB's data."""
        return self.root / "mariadb"

    @property
    def state(self) -> Path:
        """The state of slurmctld and slurmd."""
        return self.root / "state"

    @property
    def controller_state(self) -> Path:
        """State of slurmctld, and the pid files of slurmctld and slurmdbd: SlurmUser writes here."""
        return self.state / "slurmctld"

    @property
    def scratch(self) -> Path:
        """MariaDB's temporary files."""
        return self.root / "state" / "scratch"

    @property
    def rightsizer(self) -> Path:
        """The store, the models, the journal and the kill switch of the service."""
        return self.root / "rightsizer"

    @property
    def gpu_spool(self) -> Path:
        """Where jobs write what the meter of a simulated GPU would have shown."""
        return self.root / "gpu-spool"
