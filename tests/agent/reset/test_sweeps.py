"""What is swept after a Chrome: its user's files in the named folders, and nothing else."""

import os

import pytest
from farmagent import sweeps
from farmagent.settings import Settings, SettingsError

USER = 54321
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


def given(path, *, uid=USER):
    path.parent.mkdir(exist_ok=True)
    path.write_text("left")
    os.chown(path, uid, uid)
    return path


def sweep(tmp_path, *, spared="work"):
    return sweeps.find([tmp_path], USER, spared=tmp_path / spared)


def test_only_the_user_s_own_files_go(tmp_path):
    own, other, deep = (
        given(tmp_path / "own"),
        given(tmp_path / "other", uid=0),
        given(tmp_path / "sub" / "deep"),
    )
    assert sweeps.remove(sweep(tmp_path), USER) == []
    assert [path.exists() for path in (own, other, deep, deep.parent)] == [False, True, False, True]


def test_a_tree_of_the_user_s_goes_whole_and_the_work_directory_stays(tmp_path):
    tree = tmp_path / "tree"
    given(tree / "inside")
    given(tree / "someone-else's", uid=0)
    os.chown(tree, USER, USER)
    kept = given(tmp_path / "work" / "c-1")
    sweeps.remove(sweep(tmp_path), USER)
    assert (tree.exists(), kept.exists()) == (False, True)


def test_a_link_goes_and_what_it_points_at_stays(tmp_path):
    target = given(tmp_path / "folder" / "file", uid=0)
    link, broken = tmp_path / "link", tmp_path / "broken"
    link.symlink_to(target.parent)
    broken.symlink_to(tmp_path / "nowhere")
    for one in (link, broken):
        os.lchown(one, USER, USER)
    assert sweeps.remove(sweep(tmp_path), USER) == []
    assert (link.is_symlink(), broken.is_symlink(), target.exists()) == (False, False, True)


def test_what_came_after_is_not_taken(tmp_path):
    """The next Chrome runs under the same user and may have made a file of the same name meanwhile."""
    path = given(tmp_path / "name")
    found = sweep(tmp_path)
    given(tmp_path / "new")
    replacement = given(tmp_path / "replacement")
    replacement.rename(path)
    sweeps.remove(found, USER)
    assert path.exists()
    assert (tmp_path / "new").exists()


def test_a_folder_that_is_not_there_is_none(tmp_path):
    assert sweeps.find([tmp_path / "nowhere"], USER, spared=tmp_path) == []


def test_the_setting():
    assert [str(path) for path in Settings.from_env({"FARMAGENT_SWEEP": "/tmp, /dev/shm"}).sweep] == [
        "/tmp",
        "/dev/shm",
    ]
    assert Settings.from_env({}).sweep == ()
    with pytest.raises(SettingsError, match="absolute paths"):
        Settings.from_env({"FARMAGENT_SWEEP": "tmp"})
