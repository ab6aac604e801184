"""From an experiment to a deployment: the app's folder, the sites' templates, and a trial on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedual import tables
from fedual.config import Config
from fedual.files import write_text
from fedual.flower.app import app_plan, read_app
from fedual.flower.keys import make_certificates, make_site_key
from fedual.flower.loopback import Loopback
from fedual.flower.plan import refuse_protection

__all__ = ["certificates", "init", "local", "resume"]

_CODE = '''"""Made by `fedual deploy init`; everything is in the TOML files beside this one."""

from pathlib import Path

from fedual.flower.app import coordinator_app, site_app

client = site_app(Path(__file__).parent)
server = coordinator_app(Path(__file__).parent)
'''
_PROJECT: dict[str, Any] = {
    "project": {"name": "fedual-app", "version": "1.0.0", "license": "Apache-2.0", "dependencies": []},
    "tool": {
        "flwr": {
            "app": {
                "publisher": "fedual",
                "components": {"serverapp": "fedual_app:server", "clientapp": "fedual_app:client"},
                "config": {"folder": "", "resume": False},
            }
        }
    },
}


def init(
    folder: str | Path, config: str | Path, sites: Sequence[str] | None = None, host: str = "coordinator.example.org",
    **deployment: Any,
) -> Path:  # fmt: skip
    """Write an app's folder, a configuration template per site, and a page with the commands.

    Args:
        folder: for all of it; must not exist or be empty.
        config: the experiment's TOML. With `schema` in its [data], no data are needed here; without, the schema is
            inferred from the files that [data] names, which must be here.
        sites: the sites' names; by default the names of the files in [data].
        host: under which sites reach the coordinator, for the page.
        **deployment: `quorum`, `timeout`, ... as for `server_app`.

    Returns:
        The app's folder, `<folder>/app`.

    Raises:
        FileExistsError: the folder is not empty.
        ValueError: the experiment cannot be deployed; the key is named.
    """
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; nothing was written.")
    refuse_protection(deployment)
    experiment = Config.load(config)
    data = experiment.data
    if data.files is None and data.schema_ is None:
        raise ValueError(
            "[data] must name one file per site, or a schema: a deployment reads tables at the sites. Write a schema "
            "with `fedual inspect`."
        )
    names = tuple(sites) if sites is not None else tuple(Path(file).stem for file in data.files or ())
    if not names:
        raise ValueError("name the sites: [data] lists no files to name them after.")
    if data.schema_ is not None:
        schema = Path(data.schema_).read_text(encoding="utf-8")
    else:
        schema = tables.inspect_files(data.files or [], target=data.target, site=data.site).to_toml()
    # What is at the sites stays there; the app knows no path.
    stripped = {"files": [f"{name}.csv" for name in names], "target": data.target, "test_fraction": data.test_fraction}
    table = {**experiment.to_dict(), "data": {key: value for key, value in stripped.items() if value is not None}}
    app = folder / "app"
    app.mkdir(parents=True)
    write_text(app / "pyproject.toml", tomli_w.dumps(_PROJECT))
    write_text(app / "fedual_app.py", _CODE)
    write_text(app / "experiment.toml", tomli_w.dumps(table))
    write_text(app / "schema.toml", schema)
    results = str((folder / "run").resolve())
    write_text(app / "deployment.toml", tomli_w.dumps({"sites": list(names), "folder": results, **deployment}))
    app_plan(read_app(app))  # whatever does not fit is refused now
    for name in names:
        site = {"name": name, "file": f"{name}.csv", "state": f"state-{name}", "minimum_rows": 1, "share": ["summary"]}
        path = folder / "sites" / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        write_text(path, tomli_w.dumps(site))
    write_text(folder / "COMMANDS.md", _page(names, host))
    return app


def certificates(folder: str | Path, hosts: Sequence[str], sites: Sequence[str], days: int = 365) -> list[Path]:
    """Make a CA, the server's certificate, and a key per site; see `make_certificates` and `make_site_key`.

    Better: every site makes its own key and sends its `.pub` only.

    Raises:
        FileExistsError: a file exists already.
    """
    made = list(make_certificates(folder, hosts, days).values())
    for site in sites:
        made += make_site_key(folder, site)
    return made


def local(
    config: str | Path, files: Sequence[str | Path], folder: str | Path, timeout: float = 3600.0, resume: bool = False
) -> Path:
    """Run an experiment as a deployment on this machine: TLS, keys, and a SuperNode process per site.

    Args:
        config: the experiment's TOML.
        files: one table per site; the names of the files become the sites'.
        folder: for everything.
        timeout: seconds for the whole run.
        resume: go on with the run in `folder`.

    Returns:
        The folder with the results: `model.safetensors`, `history.csv`, `summary.json`, `run.log`.

    Raises:
        RuntimeError: the run failed; the end of its log is in the message.
        TimeoutError: it did not end in time.
    """
    folder, paths = Path(folder).resolve(), [Path(file).resolve() for file in files]
    names = [path.stem for path in paths]
    if not resume:
        init(folder, config, names)
        for name, path in zip(names, paths, strict=True):
            site = {
                "name": name,
                "file": str(path),
                "state": str(folder / "state" / name),
                "share": ["summary", "smoothness"],
            }
            write_text(folder / "sites" / f"{name}.toml", tomli_w.dumps(site))
    nodes = {name: {"config": str(folder / "sites" / f"{name}.toml")} for name in names}
    with Loopback(folder / "processes", nodes) as federation:
        _conducted(federation, folder, timeout, resume)
    return folder / "run"


def resume(config: str | Path, files: Sequence[str | Path], folder: str | Path, timeout: float = 3600.0) -> Path:
    """Go on with a run of `local` from its last communication."""
    return local(config, files, folder, timeout, resume=True)


def _conducted(federation: Loopback, folder: Path, timeout: float, resume: bool) -> None:
    run = federation.run(folder / "app", resume=resume)
    end, log = time.monotonic() + timeout, folder / "run" / "run.log"
    status = federation.wait(run, max(1.0, end - time.monotonic()))
    if status != "finished:completed":
        said = log.read_text(encoding="utf-8").splitlines()[-5:] if log.exists() else ["nothing was logged"]
        raise RuntimeError(f"the run ended as {status}: " + "\n".join(said))


def _page(names: Sequence[str], host: str) -> str:
    first = names[0]
    register = "\n".join(f"flwr supernode register keys/{name}.pub deployment --name {name}" for name in names)
    return f"""# Commands of this deployment

In every shell, so that nothing is reported to anybody:

```sh
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
```

## Coordinator

Keys, once. `keys/ca.crt` goes to every site; every other file in `keys` stays.

```sh
fedual deploy certificates keys --host {host}
```

The link, which sites connect to on port 8000 (the only port that must be open):

```sh
flower-superlink --host 0.0.0.0 --port 8000 --ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt \\
    --ssl-keyfile keys/server.key --enable-supernode-auth --disable-runtime-dependency-installation --database link.db
```

How `flwr` reaches it, in `$FLWR_HOME/config.toml` (by default `~/.flwr/config.toml`), the path being absolute:

```toml
[superlink]
default = "deployment"

[superlink.deployment]
address = "{host}:8000"
root-certificates = "/path/of/keys/ca.crt"
```

The sites' public keys, which they sent, under the sites' names:

```sh
{register}
```

The run, and going on after an interruption:

```sh
flwr run app deployment --stream
flwr run app deployment --stream --run-config resume=true
```

`run/run.log` says whom the run waits for; the results are in `run`.

## Site, here {first}

A key, once. Send `{first}.pub` to the coordinator; `{first}.key` stays. Without fedual's command, the same with
`ssh-keygen -t ecdsa -b 384 -N "" -f {first}.key`.

```sh
fedual deploy key . --site {first}
```

Put the table's path into `{first}.toml`, and what may be shared. Then one command, which only ever connects outwards;
it starts Flower's SuperNode, and starts it again when it fails:

```sh
fedual deploy join {first}.toml --link {host}:8000 --ca ca.crt --key {first}.key
```
"""
