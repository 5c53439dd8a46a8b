"""Two clusters never share a folder: the second would take the first one's kubeconfig away when it ends."""

import pathlib
import tempfile

import pytest

from drakit.core import errors
from drakit_tools import local_cluster


def test_a_second_cluster_in_a_folder_is_refused_until_the_first_ends() -> None:
    # Sockets need a short path, which pytest's own folders do not have.
    with tempfile.TemporaryDirectory(prefix="drakit-", dir="/tmp") as made:
        folder = pathlib.Path(made)
        with local_cluster.workplace(folder, ["a"]) as place:
            with pytest.raises(errors.SettingsError, match="another cluster is running"), local_cluster.workplace(folder, ["a"]):
                pass
            assert place == folder
        with local_cluster.workplace(folder, ["a"]):
            assert (folder / local_cluster.LOCK).stat().st_mode & 0o777 == 0o600
