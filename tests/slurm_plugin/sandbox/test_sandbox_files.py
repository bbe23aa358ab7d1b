"""The sandbox's configuration files: their content, for each release and host."""

import dataclasses
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ConfigError, SandboxError
from slurm_plugin.config.file import parse_config
from slurm_plugin.config.hook import client_settings, hook_settings, lua_string
from slurm_plugin.sandbox import files, slurm_conf, slurm_user
from slurm_plugin.sandbox.enforcement import Enforcement
from slurm_plugin.sandbox.environment import daemon_environment
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.ports import reserved_ports
from slurm_plugin.sandbox.release import Version, parse_version, quirks_of
from slurm_plugin.sandbox.shape import PLAIN, NodeShape, Shape
from slurm_plugin.sandbox.slurm_conf import ClusterPlan, Ports

ON = Enforcement(memory=True, swap=True, reason="cgroup v1")
ON_V2 = Enforcement(memory=True, swap=False, reason="cgroup v2", plugin="cgroup/v2")
OFF = Enforcement(memory=False, swap=False, reason="only root may make cgroups")


def plan(
    *,
    version: Version = (22, 5),
    nodes: int = 2,
    enforcement: Enforcement = ON,
    hook: bool = True,
    plugins: Path | None = None,
    shape: Shape = PLAIN,
) -> ClusterPlan:
    return ClusterPlan(
        layout=Layout(Path("/srv/sandbox")),
        ports=Ports(7000, 7001, 7002, tuple(range(7003, 7003 + nodes))),
        version=version,
        host="here",
        user="root",
        starter="root",
        hook=hook,
        enforcement=enforcement,
        plugins=plugins,
        shape=shape,
    )


def settings(text: str) -> dict[str, str]:
    lines = [
        line for line in text.splitlines() if line and not line.startswith(("#", "NodeName", "PartitionName"))
    ]
    return dict(line.split("=", 1) for line in lines)


@given(count=st.integers(1, 40))
def test_reserved_ports_are_different_in_every_reservation(count: int) -> None:
    with reserved_ports(count) as ports, reserved_ports(count) as others:
        assert len({*ports, *others}) == 2 * count


def test_a_reserved_port_can_be_used_only_by_its_daemon() -> None:
    with reserved_ports(1) as (port,), socket.socket() as daemon, socket.socket() as stranger:
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("", port))
        daemon.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        daemon.bind(("", port))
        daemon.listen()
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_reserved_ports_are_not_those_of_outgoing_connections() -> None:
    with reserved_ports(40) as ports, socket.socket() as daemon, ExitStack() as clients:
        daemon.bind(("127.0.0.1", 0))
        daemon.listen()
        going_out = [
            clients.enter_context(socket.create_connection(daemon.getsockname())) for _ in range(100)
        ]
        lowest = min(client.getsockname()[1] for client in going_out)
        assert max(ports) < lowest


def test_a_refusal_for_lack_of_ports_counts_those_that_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserved_ports(1) as taken:
        monkeypatch.setattr("slurm_plugin.sandbox.ports._candidates", lambda _: taken)
        with pytest.raises(SandboxError, match="only 0 of 1 TCP ports"), reserved_ports(1):
            pass


@given(nodes=st.integers(1, 64))
def test_every_node_has_its_own_name_and_port(nodes: int) -> None:
    lines = [
        line for line in slurm_conf.slurm_conf(plan(nodes=nodes)).splitlines() if line.startswith("NodeName=")
    ]
    fields = [dict(field.split("=", 1) for field in line.split()) for line in lines]
    assert len(fields) == nodes
    assert len({field["NodeName"] for field in fields}) == nodes
    ports = {field["Port"] for field in fields} | {"7000", "7001", "7002"}
    assert len(ports) == nodes + 3


def test_a_node_has_the_agreed_resources() -> None:
    line = next(line for line in slurm_conf.slurm_conf(plan()).splitlines() if line.startswith("NodeName="))
    for word in ("CPUs=16", "Sockets=1", "CoresPerSocket=16", "ThreadsPerCore=1", "RealMemory=64000"):
        assert word in line.split()
    assert line.endswith("Gres=gpu:4,shard:16")


def test_a_test_may_ask_for_other_nodes_and_more_lines() -> None:
    typed = NodeShape(cores=8, threads_per_core=2, gpu_types=("a", "a", "a", "b"), features=("fast", "ib"))
    lines = ("Licenses=matlab:50", "PartitionName=other Nodes={node[0]}")
    shaped = plan(nodes=3, shape=Shape(nodes=(typed,), lines=lines, outside_main=2))
    written = slurm_conf.slurm_conf(shaped).splitlines()
    words = next(line for line in written if line.startswith("NodeName=")).split()
    assert {"CPUs=16", "CoresPerSocket=8", "ThreadsPerCore=2", "Feature=fast,ib"} <= set(words)
    assert "Gres=gpu:a:3,gpu:b:1,shard:16" in words
    first = shaped.nodes[0]
    assert written[-2:] == ["Licenses=matlab:50", f"PartitionName=other Nodes={first}"]
    assert f"PartitionName=main Nodes={first} Default=YES" in slurm_conf.slurm_conf(shaped)
    gres = slurm_conf.gres_conf(shaped).splitlines()
    assert f"NodeName={first} Name=gpu Type=b File=/srv/sandbox/dev/gpu[3-3]" in gres
    assert f"NodeName={shaped.nodes[1]} Name=gpu File=/srv/sandbox/dev/gpu[0-3]" in gres


@given(st.text(alphabet="abcdefghij/", min_size=1), st.text(alphabet="abcdefghij/", min_size=1))
def test_two_folders_share_no_node_name(one: str, other: str) -> None:
    first, second = Layout(Path("/", one)), Layout(Path("/", other))
    if first.root != second.root:
        assert not set(first.node_names(3)) & set(second.node_names(3))
    assert first.tag.isalpha()
    assert first.tag.islower()


@pytest.mark.parametrize("version", [(22, 5), (23, 2), (23, 11), (24, 11), (25, 11), (26, 5)])
def test_lines_that_26_05_refuses_are_written_for_no_release(version: Version) -> None:
    for enforcement in (ON, ON_V2, OFF):
        names = settings(slurm_conf.slurm_conf(plan(version=version, enforcement=enforcement)))
        assert not {"MpiDefault", "SwitchType"} & names.keys()
        assert names.get("TaskPlugin") in {None, "task/cgroup"}


def test_each_release_gets_the_lines_that_it_needs() -> None:
    assert "job_extra" not in quirks_of((22, 5)).store_flags
    assert "job_extra" in quirks_of((23, 2)).store_flags
    assert "CgroupAutomount=no" in slurm_conf.cgroup_conf(plan(version=(22, 5))).splitlines()
    assert "CgroupAutomount" not in slurm_conf.cgroup_conf(plan(version=(26, 5)))


def test_without_enforcement_no_cgroup_plugin_is_used_and_the_reason_is_written() -> None:
    off = plan(enforcement=OFF)
    assert "cgroup" not in slurm_conf.slurm_conf(off)
    assert settings(slurm_conf.slurm_conf(off))["ProctrackType"] == "proctrack/linuxproc"
    assert slurm_conf.cgroup_conf(off).startswith("# Memory is not limited: only root may make cgroups.\n")


@pytest.mark.parametrize(
    ("version", "plugin"),
    [((22, 5), "cgroup/v1"), ((23, 11), "cgroup/v1"), ((24, 5), "disabled"), ((26, 5), "disabled")],
)
def test_without_enforcement_slurmd_stays_out_of_the_cgroups_of_the_host(
    version: Version, plugin: str
) -> None:
    assert settings(slurm_conf.cgroup_conf(plan(version=version, enforcement=OFF)))["CgroupPlugin"] == plugin


def test_the_hook_and_the_plugin_folder_are_written_only_if_wanted() -> None:
    assert settings(slurm_conf.slurm_conf(plan()))["JobSubmitPlugins"] == "lua"
    assert "JobSubmitPlugins" not in slurm_conf.slurm_conf(plan(hook=False))
    assert "PluginDir" not in slurm_conf.slurm_conf(plan())
    with_prefix = plan(plugins=Path("/opt/slurm/lib/slurm"))
    assert settings(slurm_conf.slurm_conf(with_prefix))["PluginDir"] == "/opt/slurm/lib/slurm"
    assert "PluginDir=/opt/slurm/lib/slurm" in slurm_conf.slurmdbd_conf(with_prefix, "pw").splitlines()


def test_the_program_can_read_its_configuration() -> None:
    layout = Layout(Path("/srv/sandbox"))
    config = parse_config(files.rightsizer_toml(layout, "advise"))
    assert config.mode == "advise"
    assert config.service.socket == str(layout.service_socket)
    assert config.store.url == "sqlite:////srv/sandbox/rightsizer/store.db"
    assert config.accounting.overlap_s == 120
    assert config.policy.def_mem_per_cpu_mib == int(settings(slurm_conf.slurm_conf(plan()))["DefMemPerCPU"])


def test_rewriting_the_mode_changes_nothing_else(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.etc.mkdir()
    layout.rightsizer_toml.write_text("# mine\n" + files.rightsizer_toml(layout, "observe"))
    files.rewrite_mode(layout, "enforce")
    assert layout.rightsizer_toml.read_text() == "# mine\n" + files.rightsizer_toml(layout, "enforce")


def test_a_mode_that_somebody_removed_is_added_again(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.etc.mkdir()
    layout.rightsizer_toml.write_text("[service]\nsocket_mode = '0600'\n")
    files.rewrite_mode(layout, "enforce")
    assert parse_config(layout.rightsizer_toml.read_text()).mode == "enforce"


def test_the_tail_of_a_log_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert files.tail(log) == "(no log)"
    log.write_text("")
    assert files.tail(log) == "(empty log)"
    log.write_text("\n".join(str(number) for number in range(9)))
    assert files.tail(log, lines=2) == "7 | 8"
    assert files.tail(log, about="3") == "3"
    assert files.tail(log, lines=2, about="nowhere") == "7 | 8"


def test_with_cgroup_v2_slurm_limits_memory_and_leaves_swap_to_the_scopes() -> None:
    for version in ((22, 5), (26, 5)):
        given = settings(slurm_conf.cgroup_conf(plan(version=version, enforcement=ON_V2)))
        given.pop("CgroupAutomount", None)
        assert given == {
            "CgroupPlugin": "cgroup/v2",
            "CgroupMountpoint": "/sys/fs/cgroup",
            "ConstrainRAMSpace": "yes",
        }


@pytest.mark.parametrize(
    ("enforcement", "version", "gather"),
    [
        (ON, (22, 5), "jobacct_gather/cgroup"),
        (ON_V2, (22, 5), "jobacct_gather/linux"),
        (ON_V2, (23, 2), "jobacct_gather/cgroup"),
        (OFF, (26, 5), "jobacct_gather/linux"),
    ],
)
def test_memory_is_measured_by_the_cgroup_if_that_is_right(
    enforcement: Enforcement, version: Version, gather: str
) -> None:
    given = settings(slurm_conf.slurm_conf(plan(version=version, enforcement=enforcement)))
    assert given["JobAcctGatherType"] == gather
    assert ("TaskPlugin" in given) == enforcement.memory


def test_a_daemon_is_not_taken_for_the_systemd_service_that_started_the_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INVOCATION_ID", "4f9c")
    assert "INVOCATION_ID" not in daemon_environment(Layout(Path("/srv/sandbox")), ())


@pytest.mark.parametrize(
    ("words", "version"),
    [("slurm-wlm 22.05.8", (22, 5)), ("slurm 26.05.0-0rc1\n", (26, 5)), ("slurm 25.11.7", (25, 11))],
)
def test_the_release_is_read_from_the_version(words: str, version: Version) -> None:
    assert parse_version(words) == version


def test_a_text_without_a_release_is_an_error() -> None:
    with pytest.raises(SandboxError, match="is not a Slurm release"):
        parse_version("command not found")


def test_hook_settings_quote_what_lua_would_misread() -> None:
    assert lua_string('a"b\\c\n') == '"a\\034b\\092c\\010"'
    text = hook_settings(
        parse_config('[service]\nsocket = "/run/x.sock"\n[hook]\ndeadline_ms = 7\nkill_switch = "/h.off"')
    )
    assert 'socket = "/run/x.sock"' in text
    assert "deadline_ms = 7," in text
    assert 'kill_switch = "/h.off"' in text
    assert "inputs" not in text
    assert "  inputs = true,\n}" in hook_settings(parse_config('[inputs]\nroots = ["/data"]'))


def test_client_settings_name_the_socket_or_say_what_is_missing() -> None:
    text = client_settings(
        parse_config(
            '[client]\nsocket = "/run/c.sock"\nsalloc = true\ndeadline_ms = 9\nkill_switch = "/c.off"'
        )
    )
    assert 'socket = "/run/c.sock"' in text
    assert "deadline_ms = 9," in text
    assert 'kill_switch = "/c.off"' in text
    assert "salloc = true," in text
    with pytest.raises(ConfigError, match=r"client\.socket"):
        client_settings(parse_config(""))


def test_another_slurm_user_must_exist_and_may_enter_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(Path("/srv/sandbox"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SandboxError, match="only root"):
        slurm_user.check("daemon", layout, None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SandboxError, match="there is no user"):
        slurm_user.check("no-such-user", layout, None)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(SandboxError, match="may not enter"):
        slurm_user.check("daemon", Layout(closed / "sandbox"), None)


def test_slurmctld_runs_as_the_given_user_and_slurmd_as_root() -> None:
    conf = slurm_conf.slurm_conf(dataclasses.replace(plan(), user="slurm"))
    assert (settings(conf)["SlurmUser"], settings(conf)["SlurmdUser"]) == ("slurm", "root")
