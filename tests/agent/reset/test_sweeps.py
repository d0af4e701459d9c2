"""What is swept after a Chrome: its user's files in the named folders, and nothing else."""

import os
from pathlib import Path

import pytest
from farmagent.chrome import leftover_files
from farmagent.settings import Settings, SettingsError

USER = 54321
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


def given(path, *, uid=USER):
    if not path.parent.exists():
        path.parent.mkdir()
        path.parent.chmod(0o777)  # else that user could have left nothing there
    path.write_text("left")
    os.chown(path, uid, uid)
    return path


def sweep(tmp_path, *spared):
    return leftover_files.remove([tmp_path], USER, spared=spared)


def test_only_the_user_s_own_files_go(tmp_path):
    own, other, deep = (
        given(tmp_path / "own"),
        given(tmp_path / "other", uid=0),
        given(tmp_path / "sub" / "deep"),
    )
    assert sweep(tmp_path) == []
    assert [path.exists() for path in (own, other, deep, deep.parent)] == [False, True, False, True]


def test_a_tree_of_the_user_s_goes_whole(tmp_path):
    tree = tmp_path / "tree"
    given(tree / "inside")
    given(tree / "someone-else's", uid=0)
    os.chown(tree, USER, USER)
    assert sweep(tmp_path) == []
    assert not tree.exists()


def test_what_is_spared_stays_and_what_leads_to_it(tmp_path):
    """Where agent and Chrome share a uid, the work folder and its lock are that uid's too."""
    lock, beside = given(tmp_path / "work" / "lock"), given(tmp_path / "work" / "left")
    os.chown(lock.parent, USER, USER)
    assert sweep(tmp_path, lock) == []
    assert [path.exists() for path in (lock, beside)] == [True, False]


def test_a_link_goes_and_what_it_points_at_stays(tmp_path):
    target = given(tmp_path / "folder" / "file", uid=0)
    link, broken = tmp_path / "link", tmp_path / "broken"
    link.symlink_to(target.parent)
    broken.symlink_to(tmp_path / "nowhere")
    for one in (link, broken):
        os.lchown(one, USER, USER)
    assert sweep(tmp_path) == []
    assert (link.is_symlink(), broken.is_symlink(), target.exists()) == (False, False, True)


def test_a_folder_that_is_not_there_is_none(tmp_path):
    assert leftover_files.remove([tmp_path / "nowhere"], USER) == []


class TestWritableFolders:
    """As any uid of the machine sees it: mounts that can be written to, and folders open to all on them."""

    def test_are_those_that_any_uid_reaches_and_may_write_to(self, tmp_path):
        wide, shut, deep = tmp_path / "wide", tmp_path / "shut", tmp_path / "plain" / "deep"
        for folder, mode in ((wide, 0o1777), (shut, 0o700), (shut / "inside", 0o777), (deep, 0o777)):
            folder.mkdir(parents=True)
            folder.chmod(mode)
        assert set(self.found(tmp_path)) == {wide, deep}

    def test_of_many_the_nearest_are_looked_at_and_it_is_said(self, tmp_path):
        for number in range(5):
            (tmp_path / f"{number}").mkdir(mode=0o777)
            (tmp_path / f"{number}" / "below").mkdir(mode=0o777)
        places = leftover_files.writable(self.mounts(tmp_path), limit=7)
        assert places.cut

    def test_read_only_and_kernel_mounts_are_none(self, tmp_path):
        tmp_path.chmod(0o777)
        for kind, own, options in (("proc", "rw", "rw"), ("tmpfs", "ro", "rw"), ("tmpfs", "rw", "ro")):
            assert self.found(tmp_path, kind=kind, own=own, options=options) == ()

    def test_of_this_machine_hold_its_temporary_folders(self):
        assert {Path("/tmp"), Path("/dev/shm")} <= set(leftover_files.writable().folders)

    def found(self, root, **mount):
        return leftover_files.writable(self.mounts(root, **mount)).folders

    def mounts(self, root, *, kind="tmpfs", own="rw", options="rw"):
        """In a folder beside, because the walk starts only where all may pass."""
        root.chmod(0o755 if root.stat().st_mode & 0o002 == 0 else 0o777)
        for parent in list(root.parents)[:3]:
            if parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o001)
        path = root.parent / f"{root.name}-mountinfo"
        path.write_text(f"30 25 0:27 / {root} {own},relatime - {kind} none {options}\n")
        return path


def test_the_setting():
    assert [str(path) for path in Settings.from_env({"FARMAGENT_SWEEP": "/a, /b/c"}).sweep] == ["/a", "/b/c"]
    assert Settings.from_env({}).sweep == ()
    with pytest.raises(SettingsError, match="absolute paths"):
        Settings.from_env({"FARMAGENT_SWEEP": "tmp"})


@pytest.mark.parametrize("work", ["/tmp", "/tmp/a", "/tmp/a/b", "/dev/shm/../../tmp/c"])
def test_a_work_folder_in_a_swept_one_is_refused(work):
    with pytest.raises(SettingsError, match=r"FARMAGENT_WORK_DIR=.* lies in the swept folder /tmp"):
        Settings.from_env({"FARMAGENT_SWEEP": "/tmp", "FARMAGENT_WORK_DIR": work})


def test_a_work_folder_beside_a_swept_one_is_taken():
    assert Settings.from_env({"FARMAGENT_SWEEP": "/tmp/a", "FARMAGENT_WORK_DIR": "/tmp/ab"})
