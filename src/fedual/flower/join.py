"""A site's one command: a SuperNode that reports to nobody and is started again when it fails."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fedual.flower.programs import flower_environment, program

__all__ = ["join"]

_log = logging.getLogger("fedual")
_PAUSE = 10.0  # seconds; after kill -9 a link refuses a node's key for about a minute


def join(
    site: str | Path,
    link: str,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    port: int = 9094,
    home: str | Path | None = None,
) -> int:
    """Connect a site to a coordinator's SuperLink, until it is interrupted.

    Args:
        site: the site's TOML file.
        link: "host:port" of the SuperLink.
        certificate: `ca.crt` of the coordinator; None for no TLS.
        key: the site's private key; None for none.
        port: for the node's own processes, on 127.0.0.1 only.
        home: for Flower's own files.

    Returns:
        The exit code of the last SuperNode.

    Raises:
        ValueError: a key without TLS, or a file that is not there.
    """
    config = Path(site).expanduser().resolve()
    missing = [str(p) for p in (config, certificate, key) if p is not None and not Path(p).expanduser().is_file()]
    if missing:
        raise ValueError(f"there is no file {', '.join(missing)}.")
    return supervise(node_options({"config": str(config)}, link, certificate, key, port), home)


def node_options(
    config: dict[str, object], link: str, certificate: str | Path | None, key: str | Path | None, port: int
) -> list[str]:
    """Options of `flower-supernode`.

    Raises:
        ValueError: a key without TLS.
    """
    if key is not None and certificate is None:
        raise ValueError("a key without TLS protects nothing: give the coordinator's ca.crt as well.")
    options = ["--superlink", link, "--port", str(port)]
    options += ["--insecure"] if certificate is None else ["--root-certificates", str(certificate)]
    options += [] if key is None else ["--auth-supernode-private-key", str(key)]
    return [*options, "--node-config", " ".join(f"{name}={_toml(value)}" for name, value in config.items())]


def supervise(options: Sequence[str], home: str | Path | None = None) -> int:
    """Run `flower-supernode`, and again when it fails; the exit code with which it ended in order."""
    environment = flower_environment(home)
    while True:
        code = subprocess.call([program("flower-supernode"), *options], env=environment)
        # Asked to stop: in order, or by a signal that reached both.
        if code in (0, -2, -15):
            return code
        _log.warning("the SuperNode ended with exit code %d and is started again in %.0f s", code, _PAUSE)
        time.sleep(_PAUSE)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))
