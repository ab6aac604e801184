"""Linear models that are trained by a federated method and used like scikit-learn's own.

    FederatedLogisticRegression().fit(X, y, groups=hospital)

`groups` says which site holds each row; without it all rows are one site's. The answer does not depend on it: at the
default tolerance it is that of scikit-learn's estimator of the same name on the pooled table. What depends on it is how
the answer is reached: rows stay with their site, and only messages of the size of the model cross.
"""

from fedual.sklearn.linear import (
    FederatedElasticNet,
    FederatedLasso,
    FederatedLinearRegression,
    FederatedLogisticRegression,
)

__all__ = ["FederatedElasticNet", "FederatedLasso", "FederatedLinearRegression", "FederatedLogisticRegression"]
