"""Folders that a person names with --folder: only those that nobody else can change, or put another in the place of, are used."""

import os
import pathlib
import stat

from drakit.core import errors

_KEY = "--folder"


def check_own(folder: pathlib.Path) -> None:
    """Raise SettingsError for a folder that another user owns, can write to or can replace; one that is not there yet is fine.

    Such a user could replace what commands read below it: a kubeconfig, whose exec plugin would then run as the caller, or a socket.
    """
    try:
        real = folder.resolve()
        existing = [place for place in (real, *real.parents) if place.exists()]
        if real in existing and not real.is_dir():
            raise errors.SettingsError(f"{folder} is not a folder", key=_KEY)
        for place in existing:
            _check(place, is_named=place == real)
    except OSError as error:
        raise errors.SettingsError(f"cannot use {folder}: {error.strerror}", key=_KEY) from error


def _check(place: pathlib.Path, *, is_named: bool) -> None:
    found = place.stat()
    if found.st_uid != os.geteuid() and (is_named or found.st_uid != 0):
        owner = f"{place} belongs to user {found.st_uid}, who could replace the files in it"
        raise errors.SettingsError(f"{owner}; give a folder of your own", key=_KEY)
    is_sticky = bool(found.st_mode & stat.S_ISVTX)
    if not _others_write(found) or (is_sticky and not is_named):
        return
    fix = f"give a folder inside it, such as {place / 'drakit'}" if is_sticky else f"run: chmod go-w {place}"
    raise errors.SettingsError(f"other users can write to {place}; {fix}", key=_KEY)


def _others_write(found: os.stat_result) -> bool:
    """Whether the mode lets others write; a user's own group, which has the user's number, is nobody else."""
    is_own_group = found.st_gid == os.getegid() == os.geteuid()
    return bool(found.st_mode & (stat.S_IWOTH if is_own_group else stat.S_IWOTH | stat.S_IWGRP))
