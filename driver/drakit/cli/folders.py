"""Folders that a person names with --folder: only those that nobody else can change are used."""

import os
import pathlib
import stat

from drakit.core import errors

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_own(folder: pathlib.Path) -> None:
    """Raise SettingsError for a folder that another user owns or can write to; one that is not there yet is fine.

    Such a user could replace what commands read below it: a kubeconfig, whose exec plugin would then run as the caller, or a socket.
    """
    try:
        found = folder.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.SettingsError(f"cannot use {folder}: {error.strerror}", key="--folder") from error
    if not stat.S_ISDIR(found.st_mode):
        raise errors.SettingsError(f"{folder} is not a folder", key="--folder")
    if found.st_uid != os.geteuid():
        owner = f"{folder} belongs to user {found.st_uid}, who could replace the files in it"
        raise errors.SettingsError(f"{owner}; give a folder of your own", key="--folder")
    if found.st_mode & _OTHERS_WRITE:
        fix = f"give a folder inside it, such as {folder / 'drakit'}" if found.st_mode & stat.S_ISVTX else f"run: chmod go-w {folder}"
        raise errors.SettingsError(f"other users can write to {folder}; {fix}", key="--folder")
