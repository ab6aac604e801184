"""A Flower app as quickstarts have it: logistic regression in NumPy, trained with federated averaging."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg


def load_data(site: str):
    rng = np.random.default_rng([*site.encode()])
    features = rng.normal(size=(40, 5))
    return features, (features @ rng.normal(size=5) > 0).astype(float)


client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    features, labels = load_data(str(context.node_config["site"]))
    weights = message.content["arrays"].to_numpy_ndarrays()[0]
    for _ in range(8):
        predicted = 1 / (1 + np.exp(-features @ weights))
        weights = weights - 0.5 * features.T @ (predicted - labels) / len(labels)
    content = {"arrays": ArrayRecord([weights]), "metrics": MetricRecord({"num-examples": len(labels)})}
    return Message(content=RecordDict(content), reply_to=message)


server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    result = FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=ArrayRecord([np.zeros(5)]), num_rounds=30)
    np.save("model.npy", result.arrays.to_numpy_ndarrays()[0])
