"""Where turns run is the user's decision, and Ray is needed only if that is a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

from ralph.app.run_options import choose_pool
from ralph.core.errors import UsageError
from ralph.documents.config import parse_config
from ralph.documents.run_record import PoolSpec

IMPORT_ALL = """import importlib, pkgutil, sys
import ralph
for module in pkgutil.walk_packages(ralph.__path__, "ralph."):
    if module.name not in ("ralph.app.cluster_bridge", "ralph.__main__"):
        importlib.import_module(module.name)
print(sorted(name for name in sys.modules if name.partition(".")[0] == "ray"))
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "ralph" / "config.yml"
    path.parent.mkdir()
    return path


def test_turns_run_on_this_machine_by_default(settings: Path) -> None:
    assert choose_pool(None) == PoolSpec("local")


def test_a_repository_cannot_choose_a_cluster(settings: Path) -> None:
    config = parse_config("pool: {kind: ray, address: 'evil.example.org:6379'}\n", "ralph.yml")
    assert config.pool == {"kind": "ray", "address": "evil.example.org:6379"}
    assert choose_pool(None) == PoolSpec("local")


def test_the_users_settings_choose_a_cluster_and_the_option_wins(settings: Path) -> None:
    settings.write_text("pool: {kind: ray, address: 'a:1', resources: {cpu: 2}, labels: {executor: [big]}}\n")
    chosen = PoolSpec("ray", "a:1", resources={"cpu": 2.0}, labels={"executor": ("big",)})
    assert choose_pool(None, dry_run=True) == chosen
    assert choose_pool("b:2", dry_run=True).address == "b:2"
    assert choose_pool("local") == PoolSpec("local")


def test_a_kind_alone_is_a_pool(settings: Path) -> None:
    settings.write_text("pool: ray\n")
    assert choose_pool(None, dry_run=True) == PoolSpec("ray", "auto")


@pytest.mark.parametrize("option", ["somewhere", "host:", ":6379", "host:port"])
def test_a_pool_that_is_none_is_refused(settings: Path, option: str) -> None:
    with pytest.raises(UsageError, match="is not a pool"):
        choose_pool(option)


def test_a_cluster_without_the_extra_is_refused_with_what_to_install(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as refused:
        choose_pool("ray")
    assert "pip install 'ralph-engine[ray]'" in refused.value.todo


def test_only_the_bridge_imports_ray() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
