"""Kubeconfig files: the reader for those of k3s and of the user, and the text of those that the installer mints."""

import base64
from dataclasses import replace
from pathlib import Path

from edgegpu_base.kube.kubeconfig import ApiAccess, KubeconfigError, UnreadableKubeconfigError, load
from edgegpu_installer.errors import InstallError

_ANEW = "write the file anew, or name another one"
_UNREADABLE = "run as root on a server whose k3s is up, or name another file"


def read(path: Path) -> ApiAccess:
    """Read the current context of a kubeconfig; file names in it are relative to its folder.

    A token's file is read once: no run of the installer outlives its token.

    Raises:
        InstallError: the file cannot be read, is no kubeconfig, or logs in by a program, which is not supported.
    """
    try:
        access = load(path)
        if access.token_file is not None and not access.token:
            access = replace(access, token=access.token_file.read_text(encoding="ascii").strip())
    except UnreadableKubeconfigError as error:  # base's remedy is for a daemon: a key of its configuration
        raise InstallError(error.message, _UNREADABLE) from error
    except KubeconfigError as error:
        raise InstallError(error.message, error.remedy or _ANEW) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InstallError(f"cannot use {path}: cannot read {access.token_file} in it", _ANEW) from error
    return access


def render(*, server: str, ca_pem: str, token: str) -> str:
    """Return the text of a kubeconfig with an account's token; equal arguments give equal bytes."""
    ca = base64.b64encode(ca_pem.encode()).decode()
    return "\n".join(
        (
            "apiVersion: v1",
            "kind: Config",
            "clusters:",
            "  - name: k3s",
            "    cluster:",
            f"      server: {server}",
            f"      certificate-authority-data: {ca}",
            "users:",
            "  - name: edgegpu",
            "    user:",
            f"      token: {token}",
            "contexts:",
            "  - name: edgegpu",
            "    context:",
            "      cluster: k3s",
            "      user: edgegpu",
            "current-context: edgegpu",
            "",
        )
    )
