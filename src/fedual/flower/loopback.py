"""A federation on this machine for trials and tests: SuperLink and SuperNodes as processes, with TLS and keys."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tomli_w

from fedual.flower.join import node_options
from fedual.flower.keys import make_certificates, make_site_key
from fedual.flower.programs import end_all, flower_environment, program

__all__ = ["Loopback"]


class Loopback:
    """SuperLink and SuperNodes on 127.0.0.1; leaving the context ends every process that it started.

    Args:
        folder: for keys, logs and Flower's own files.
        sites: from a site's name to its node configuration, to which the name is added.
        secure: TLS and a key per site.
    """

    def __init__(self, folder: str | Path, sites: Mapping[str, Mapping[str, Any]], secure: bool = True) -> None:
        self.folder = Path(folder).resolve()
        self.sites = {name: {**config, "site": name} for name, config in sites.items()}
        self.secure = secure
        self.port = _free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.home = self.folder / "flower"
        self.environment = flower_environment(self.home)

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        keys = self.folder / "keys"
        if self.secure and not keys.exists():
            make_certificates(keys, ["127.0.0.1", "localhost"])
            for site in self.sites:
                make_site_key(keys, site)
        connection: dict[str, Any] = {"address": f"127.0.0.1:{self.port}"}
        connection |= {"root-certificates": str(keys / "ca.crt")} if self.secure else {"insecure": True}
        table = {"superlink": {"default": "loopback", "loopback": connection}}
        (self.home / "config.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
        try:
            self.start_link()
            for site in self.sites:
                self.start_node(site)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, traceback: TracebackType | None) -> None:
        self.stop()

    def start_link(self) -> None:
        """Start the SuperLink; when it is new, make the sites' keys known to it. What it knows survives in a file."""
        keys, database = self.folder / "keys", self.folder / "link.db"
        new = not database.exists()
        options: list[str | Path] = ["--insecure"]
        if self.secure:
            options = ["--ssl-ca-certfile", keys / "ca.crt", "--ssl-certfile", keys / "server.crt"]
            options += ["--ssl-keyfile", keys / "server.key", "--enable-supernode-auth"]
        self._start(
            "link",
            [program("flower-superlink"), "--host", "127.0.0.1", "--port", str(self.port), *map(str, options),
             "--disable-runtime-dependency-installation", "--database", str(database)],
        )  # fmt: skip
        _wait_for_port(self.port, self.processes["link"], self.log("link"))
        if self.secure and new:
            for site in self.sites:
                self.call("supernode", "register", str(keys / f"{site}.pub"), "loopback", "--name", site)

    def start_node(self, site: str) -> None:
        """Start one site's SuperNode."""
        keys = self.folder / "keys"
        certificate, key = (keys / "ca.crt", keys / f"{site}.key") if self.secure else (None, None)
        options = node_options(self.sites[site], f"127.0.0.1:{self.port}", certificate, key, _free_port())
        self._start(site, [sys.executable, "-m", "fedual.flower.join", *options])

    def call(self, *arguments: str, timeout: float = 120) -> str:
        """`flwr` with arguments; its output.

        Raises:
            RuntimeError: it failed.
        """
        done = subprocess.run(
            [program("flwr"), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"flwr {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def run(self, app: Path, **config: Any) -> str:
        """Hand an app to the SuperLink; the run's id in Flower."""
        pairs = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        more: Sequence[str] = ("--run-config", pairs) if pairs else ()
        out = self.call("run", str(app), "loopback", "--format", "json", *more)
        told = json.loads(out[out.index("{") :])
        if "run-id" not in told:
            raise RuntimeError(f"{app} was not accepted: {out}")
        return str(told["run-id"])

    def status(self, run: str) -> str:
        """Flower's word on a run, such as "finished:completed"."""
        out = self.call("ls", "--run-id", run, "--format", "json")
        return str(json.loads(out[out.index("{") :])["runs"][0]["status"])

    def wait(self, run: str, timeout: float) -> str:
        """Wait for the end of a run; its status.

        Raises:
            TimeoutError: it did not end in time.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            status = self.status(run)
            if status.startswith("finished"):
                return status
            time.sleep(1)
        raise TimeoutError(f"run {run} did not end within {timeout:.0f} s; the logs are in {self.folder}.")

    def kill(self, name: str) -> None:
        """kill -9 the SuperLink ("link") or a site's SuperNode, with everything that it started."""
        process = self.processes.pop(name)
        end_all(process)
        process.wait()

    def stop(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            end_all(process, signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            end_all(process)
            process.wait()
        self.processes.clear()

    def log(self, name: str) -> Path:
        """The log of the SuperLink or a site."""
        return self.folder / f"{name}.log"

    def _start(self, name: str, command: list[str]) -> None:
        with open(self.log(name), "ab") as log:
            # A session of its own, so that what it starts ends with it.
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, timeout: float = 120) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise RuntimeError(f"the SuperLink did not start: {log.read_text(errors='replace')[-2000:]}")
