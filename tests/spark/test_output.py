"""What a job may write over, and that it is there until the new one is whole."""

import os
from pathlib import Path

import pytest
import typer

from barnabas.tools.cli.spark_output import check_output, written


def write(output: Path, text: str, *, overwrite: bool = False) -> None:
    with written(str(output), overwrite=overwrite) as place:
        (Path(place) / "part").mkdir(parents=True)
        (Path(place) / "part" / "0.parquet").write_text(text)


def is_refused(output: Path, *, overwrite: bool) -> bool:
    try:
        check_output(str(output), overwrite=overwrite)
    except typer.Exit:
        return True
    return False


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A folder that a job has written."""
    write(tmp_path / "out", "old")
    return tmp_path / "out"


def content(output: Path) -> str:
    """What the job wrote there, if there is nothing left beside it."""
    assert [path.name for path in output.parent.iterdir()] == [output.name]
    return (output / "part" / "0.parquet").read_text()


def test_only_what_was_written_so_is_written_over(tmp_path: Path) -> None:
    output = tmp_path / "new" / "out"
    assert not is_refused(output, overwrite=False) and not is_refused(output, overwrite=True)
    write(output, "old")
    assert is_refused(output, overwrite=False) and not is_refused(output, overwrite=True)
    write(output, "new", overwrite=True)
    assert content(output) == "new"
    write(output, "newer", overwrite=True)
    assert content(output) == "newer"


def test_a_folder_without_anything_is_taken(tmp_path: Path) -> None:
    for overwrite in (False, True):
        (tmp_path / "out").mkdir()
        write(tmp_path / "out", "new", overwrite=overwrite)
        assert content(tmp_path / "out") == "new"
        (tmp_path / "out").rename(tmp_path.parent / f"{tmp_path.name}-{overwrite}")


def test_with_anything_else_in_it_a_folder_stays(output: Path) -> None:
    notes = output / "part" / "notes.txt"
    notes.write_text("mine")
    assert is_refused(output, overwrite=True)
    notes.unlink()
    (output / "link").symlink_to(output.parent)
    assert is_refused(output, overwrite=True)
    (output / "link").unlink()
    assert not is_refused(output, overwrite=True)


def test_what_was_changed_since_stays(output: Path) -> None:
    part = output / "part" / "0.parquet"
    time = part.stat().st_mtime_ns
    os.utime(part, ns=(time, time + 1))
    assert is_refused(output, overwrite=True)
    os.utime(part, ns=(time, time))
    assert not is_refused(output, overwrite=True)
    part.write_text("longer than before")
    assert is_refused(output, overwrite=True)


def test_a_link_in_the_place_of_a_folder_is_not_followed(output: Path) -> None:
    (output / "part").rename(output.parent / "elsewhere")
    (output / "part").symlink_to(output.parent / "elsewhere")
    assert is_refused(output, overwrite=True)
    (output.parent / "linked").symlink_to(output)
    assert is_refused(output.parent / "linked", overwrite=True)


def test_what_another_writes_meanwhile_stays(output: Path) -> None:
    notes = output / "part" / "notes.txt"
    with pytest.raises(typer.Exit), written(str(output), overwrite=True) as place:
        Path(place).mkdir()
        notes.write_text("mine")
    assert notes.read_text() == "mine" and content(output) == "old"


def test_what_another_writes_into_a_new_folder_meanwhile_is_not_ours(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(OSError, match="not empty"), written(str(output)) as place:
        Path(place).mkdir()
        output.mkdir()
        (output / "notes.txt").write_text("mine")
    assert is_refused(output, overwrite=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "notes.txt"]


@pytest.mark.parametrize("listed", ["{", "7", '["part/0.parquet"]', '{"part/1.parquet": [1, 2]}', None])
def test_folders_that_others_made_stay(output: Path, listed: str | None) -> None:
    (output / "_barnabas_output").unlink()
    if listed is not None:
        (output / "_barnabas_output").write_text(listed)
    assert is_refused(output, overwrite=True)
    (output.parent / "file").write_text("x")
    assert is_refused(output.parent / "file", overwrite=True)


def test_a_job_that_fails_leaves_the_old_one(output: Path) -> None:
    with pytest.raises(OSError, match="full"), written(str(output), overwrite=True) as place:
        Path(place).mkdir()
        raise OSError("full")
    assert content(output) == "old"


def test_a_kill_in_the_middle_loses_nothing(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every step the old one is whole, by its name or beside it."""
    steps = []

    def seen(step: object) -> None:
        places = [output, *output.parent.glob(".out.*/old")]
        steps.append([(place / "part" / "0.parquet").read_text() for place in places if place.exists()])

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, to: [seen(path), rename(path, to), seen(to)][1])
    write(output, "new", overwrite=True)
    assert steps == [["old"], ["old"], ["old"], ["new", "old"]]


def test_other_machines_are_left_alone() -> None:
    check_output("s3://bucket/out")
    with written("s3://bucket/out") as place:
        assert place == "s3://bucket/out"
    with pytest.raises(typer.Exit):
        check_output("s3://bucket/out", overwrite=True)
