import numpy as np
import pytest


@pytest.fixture
def experiment_file(tmp_path):
    """An experiment over three small tables; the third site has a single row."""
    rng = np.random.default_rng(0)
    for site, count in (("north", 30), ("south", 20), ("east", 1)):
        age = rng.integers(20, 90, count)
        ill = rng.random(count) < 1 / (1 + np.exp((60 - age) / 10))
        rows = "".join(f"{a},{'mf'[a % 2]},{'yes' if i else 'no'}\n" for a, i in zip(age, ill, strict=True))
        (tmp_path / f"{site}.csv").write_text("age,sex,ill\n" + rows)
    path = tmp_path / "experiment.toml"
    path.write_text(
        """
[data]
files = ["north.csv", "south.csv", "east.csv"]
target = "ill"
test_fraction = 0.2
[loss]
name = "logistic"
l2 = 0.1
intercept = true
[algorithm]
name = "FedPD"
step_size = 2.0
[oracle]
name = "StochasticGradient"
steps = 3
batch_size = 4
[schedule]
name = "Skip"
probability = 0.3
[stop]
rounds = 10
[output]
progress_every = 1
checkpoint_every = 2
clients_every = 3
"""
    )
    return path
