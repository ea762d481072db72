"""The caches of package managers that a run in the sandbox starts with."""

from pathlib import Path

import pytest

from ralph.workspace import isolation
from ralph.workspace.isolation import cache_environment, fill_caches, write_user_file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for name, size in {
        ".m2/repository/g/a.pom": 10,
        ".m2/repository/g/a.jar": 100_000,
        ".cargo/registry/cache/index/x.crate": 100_000,
        ".cargo/registry/index/index/config.json": 10,
        ".cargo/config.toml": 10,
        ".cargo/credentials.toml": 10,
        ".cache/go-build/00/x-d": 100_000,
        "go/pkg/mod/cache/download/m/@v/list": 10,
        ".gradle/caches/modules-2/x": 10,
    }.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return home


def test_small_files_are_copied_and_large_ones_linked(home: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    fill_caches(own, {"HOME": str(home)})
    pom, jar = own / "maven" / "g" / "a.pom", own / "maven" / "g" / "a.jar"
    assert pom.is_file() and not pom.is_symlink()
    assert jar.resolve() == home / ".m2" / "repository" / "g" / "a.jar"
    assert (own / "cargo" / "registry" / "cache" / "index" / "x.crate").is_symlink()
    assert (own / "cargo" / "registry" / "index" / "index" / "config.json").is_file()
    assert (own / "cargo" / "config.toml").is_file()
    assert not (own / "cargo" / "credentials.toml").exists()
    assert (own / "go-build" / "00" / "x-d").is_symlink()
    pom.write_text("changed by the run")
    fill_caches(own, {"HOME": str(home)})
    assert pom.read_text() == "changed by the run"


def test_settings_of_maven_name_another_repository(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.pom").write_text("b")
    (home / ".m2" / "settings.xml").write_text(f"<settings><localRepository> {other} </localRepository></settings>")
    fill_caches(tmp_path / "own", {"HOME": str(home)})
    assert [path.name for path in (tmp_path / "own" / "maven").iterdir()] == ["b.pom"]


def test_a_huge_cache_is_left_out(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_MAX_FILES", 1)
    fill_caches(tmp_path / "own", {"HOME": str(home)})
    assert not (tmp_path / "own" / "maven").exists()
    assert (tmp_path / "own" / "go-build").exists()


def test_a_cache_that_was_filled_in_part_is_filled_again(home: Path, tmp_path: Path) -> None:
    partial = tmp_path / "own" / "maven.partial"
    partial.mkdir(parents=True)
    (partial / "left").write_text("from a killed engine")
    fill_caches(tmp_path / "own", {"HOME": str(home)})
    assert not partial.exists() and not (tmp_path / "own" / "maven" / "left").exists()


def test_go_and_gradle_read_the_users_downloads(home: Path, tmp_path: Path) -> None:
    found = cache_environment(tmp_path, {"HOME": str(home)})
    assert found["GOPROXY"] == f"file://{home}/go/pkg/mod/cache/download,https://proxy.golang.org,direct"
    assert found["GRADLE_RO_DEP_CACHE"] == str(home / ".gradle" / "caches")
    found = cache_environment(tmp_path, {"HOME": str(home), "GOPROXY": "https://proxy.example.org"})
    assert found["GOPROXY"].endswith(",https://proxy.example.org")


def test_options_of_the_user_for_maven_stay(tmp_path: Path) -> None:
    found = cache_environment(tmp_path, {"HOME": "/nowhere", "MAVEN_OPTS": "-Xmx1g"})
    assert found["MAVEN_OPTS"] == f"-Xmx1g -Dmaven.repo.local={tmp_path}/maven"
    assert "MAVEN_OPTS" not in cache_environment(tmp_path, {"HOME": "/nowhere", "MAVEN_OPTS": "-Dmaven.repo.local=/x"})


def test_the_user_inside_has_the_home_directory_of_the_environment(tmp_path: Path) -> None:
    write_user_file(tmp_path / "passwd", {"HOME": "/home/ada", "USER": "root"}, 1000)
    lines = (tmp_path / "passwd").read_text().splitlines()
    assert lines[0] == "root:x:1000:1000::/home/ada:/bin/sh"
    assert [line for line in lines[1:] if line.split(":")[0] == "root" or line.split(":")[2] == "1000"] == []
