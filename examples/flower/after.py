"""The same app with FedPD: dual variables at the sites, half of the rounds without a message, state that survives."""

import numpy as np

import fedual as fd
from fedual.flower import client_app, server_app


def load_data(site: str):
    rng = np.random.default_rng([*site.encode()])
    features = rng.normal(size=(40, 5))
    return features, (features @ rng.normal(size=5) > 0).astype(float)


algorithm = fd.FedPD(fd.oracles.GradientDescent(steps=8, learning_rate=0.5), step_size=2.0)
loss = fd.losses.logistic(l2=0.01)

client = client_app(lambda context: load_data(str(context.node_config["site"])), algorithm, loss)
server = server_app(algorithm, ["north", "south", "west"], schedule=fd.schedules.Skip(0.5), rounds=30)
