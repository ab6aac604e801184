"""What `fedual deploy` writes, and that it computes what the simulation of the same TOML computes."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

pytest.importorskip("flwr")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from safetensors.numpy import load_file

import fedual as fd
from fedual import flower
from fedual.config import Config, build
from fedual.engine.message import Reply
from fedual.flower.app import app_plan, read_app, site_app, site_source
from fedual.flower.conduct import conduct
from fedual.flower.handshake import Hello
from fedual.flower.leaving import audit, audit_text
from wires import Wires

NAMES = ("a", "b", "c")
CONFIG = """
[data]
files = ["a.csv", "b.csv", "c.csv"]
target = "ill"

[loss]
name = "logistic"
l2 = 0.1
intercept = true

[algorithm]
name = "FedPD"
step_size = 1.0

[oracle]
name = "GradientDescent"
steps = 3
learning_rate = 0.3

[schedule]
name = "Skip"
probability = 0.4

[stop]
rounds = 6
"""


@pytest.fixture
def experiment(tmp_path):
    rng = np.random.default_rng(0)
    for k, name in enumerate(NAMES):
        n = 12 + k
        age = rng.normal(60 + 5 * k, 10, n).round(1)
        frame = pl.DataFrame(
            {
                "age": [None, *age[1:]],  # a gap, to be filled with the mean over all sites
                "sex": rng.choice(["F", "M"], n),
                "ill": ["yes", "no", *rng.choice(["yes", "no"], n - 2)],
            }
        )
        frame.write_csv(tmp_path / f"{name}.csv")
    (tmp_path / "experiment.toml").write_text(CONFIG)
    return tmp_path / "experiment.toml"


def made(experiment, **deployment):
    """The app's folder, with sites' files that point to the tables."""
    folder = experiment.parent / "deployment"
    app = flower.init(folder, experiment, **deployment)
    for name in NAMES:
        shutil.copy(experiment.parent / f"{name}.csv", folder / "sites" / f"{name}.csv")
    return folder, app


def wired(folder, app) -> Wires:
    client = site_app(app)
    configs = {name: {"config": str(folder / "sites" / f"{name}.toml")} for name in NAMES}
    return Wires(dict.fromkeys(NAMES, client), configs)


def test_a_deployment_of_a_toml_computes_what_its_simulation_computes(experiment):
    simulated = build(Config.load(experiment))
    expected = fd.solve(simulated.problem, simulated.algorithm, rounds=6, schedule=simulated.schedule)
    folder, app = made(experiment)
    state = conduct(app_plan(read_app(app)), wired(folder, app))
    np.testing.assert_allclose(load_file(folder / "run" / "model.safetensors")["theta"], expected.theta, atol=1e-12)
    assert state.ledger.history["communications"][-1] == expected.history["communications"][state.round - 1]


def test_every_site_fills_gaps_with_the_federation_s_values(experiment):
    """The imputed column is the same whether the rows were coded together or each at its site."""
    together = build(Config.load(experiment))
    _, app = made(experiment)
    read, transform = read_app(app), together.transform.to_dict()
    for k, name in enumerate(NAMES):
        site = SimpleNamespace(name=name, file=str(experiment.parent / f"{name}.csv"), share=[])
        alone = site_source(read, site).clients(transform)
        np.testing.assert_array_equal(alone.features[0], together.problem.clients.features[k])


def test_without_consent_no_summary_leaves_a_site(experiment):
    folder, app = made(experiment)
    path = folder / "sites" / "b.toml"
    path.write_text(path.read_text().replace('"summary",', ""))
    with pytest.raises(TimeoutError, match="site 'b' does not share a summary of its columns"):
        conduct(app_plan(read_app(app)), wired(folder, app))


def test_the_app_holds_no_path_and_no_data(experiment):
    folder, app = made(experiment)
    text = "".join(path.read_text() for path in app.iterdir() if path.name != "deployment.toml")
    assert str(experiment.parent) not in text
    assert sorted(path.name for path in app.iterdir()) == [
        "deployment.toml", "experiment.toml", "fedual_app.py", "pyproject.toml", "schema.toml",
    ]  # fmt: skip
    assert "flwr supernode register keys/a.pub deployment --name a" in (folder / "COMMANDS.md").read_text()


def test_what_cannot_be_deployed_is_refused_by_init(experiment):
    with pytest.raises(ValueError, match="quorum = 2 of 3: FedPD needs every site"):
        made(experiment, quorum=2)
    with pytest.raises(FileExistsError, match="is not empty; nothing was written"):
        flower.init(experiment.parent, experiment)
    experiment.write_text(CONFIG.replace('files = ["a.csv", "b.csv", "c.csv"]\ntarget = "ill"', 'source = "flights"'))
    with pytest.raises(ValueError, match=r"\[data\] must name one file per site, or a schema"):
        flower.init(experiment.parent / "other", experiment)


def test_the_audit_lists_every_field_and_what_is_not_shared_is_missing(experiment):
    folder, app = made(experiment)
    rows = audit(app, dimension=4)
    listed = {(row.message, row.name) for row in rows}
    empty = {"value", "moved", "observed", "gradient", "dual"}  # of this method
    assert listed == {("summary", "summary")} | {("handshake", f.name) for f in fields(Hello)} | {
        ("reply", f.name) for f in fields(Reply) if f.name not in empty
    }
    assert {row.name: row.size for row in rows}["message"] == "32"
    shared = {row.name for row in audit(app, 4, folder / "sites" / "a.toml")}
    assert "summary" in shared
    assert "smoothness" not in shared
    assert "what the model is made of" in audit_text(rows)


def test_certificates_are_what_openssl_and_the_site_s_key_need(tmp_path):
    flower.certificates(tmp_path, ["localhost", "127.0.0.1"], ["a"])
    if openssl := shutil.which("openssl"):
        done = subprocess.run(
            [openssl, "verify", "-x509_strict", "-CAfile", tmp_path / "ca.crt", tmp_path / "server.crt"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.strip().endswith(": OK"), done.stderr
    names = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes()).extensions
    alternative = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternative.get_values_for_type(x509.DNSName) == ["localhost"]
    private = serialization.load_ssh_private_key((tmp_path / "a.key").read_bytes(), None)
    public = serialization.load_ssh_public_key((tmp_path / "a.pub").read_bytes())
    assert private.public_key().public_numbers() == public.public_numbers()
    for secret in ("ca.key", "server.key", "a.key"):
        assert (tmp_path / secret).stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError, match="keys are never written over"):
        flower.certificates(tmp_path, ["localhost"], [])


def test_an_app_answers_only_what_it_knows(experiment):
    folder, app = made(experiment)
    net = wired(folder, app)
    from flwr.app import Message

    from fedual.flower.records import from_records, to_records

    (identity,) = net.push_messages([Message(to_records("shell", "{}", {}), 100, "query")])
    (reply,) = net.pull_messages([identity])
    kind, facts, _ = from_records(reply.content)
    assert kind == "refused"
    assert "a kind it does not know" in json.loads(facts)["text"]


def test_a_key_without_tls_is_refused(tmp_path):
    from fedual.flower.join import join, node_options

    with pytest.raises(ValueError, match="a key without TLS protects nothing"):
        node_options({"site": "a"}, "localhost:8000", None, tmp_path / "a.key", 9094)
    with pytest.raises(ValueError, match=r"there is no file .*a\.toml"):
        join(tmp_path / "a.toml", "localhost:8000")


def test_the_command_line_writes_a_deployment_and_its_audit(experiment):
    from typer.testing import CliRunner

    from fedual.cli import app as command

    folder = experiment.parent / "deployment"
    runner = CliRunner()
    done = runner.invoke(command, ["deploy", "init", str(folder), "--config", str(experiment), "--host", "fl.org"])
    assert done.exit_code == 0, done.output
    assert "fl.org:8000" in (folder / "COMMANDS.md").read_text()
    done = runner.invoke(command, ["deploy", "audit", str(folder / "app"), "--parameters", "4"])
    assert "what the model is made of" in done.output
    done = runner.invoke(command, ["deploy", "key", str(folder / "keys"), "--site", "a"])
    assert (folder / "keys" / "a.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
