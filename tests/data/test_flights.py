"""The table inside the package and the coding of its features."""

import numpy as np
import polars as pl
import pytest

from fedual import data
from fedual.data.flights import EMBEDDED, complete_flights, flight_features, read_embedded


@pytest.fixture(scope="module")
def flights():
    return data.load("flights")


def test_the_table_holds_what_its_note_says(flights):
    clients = flights.clients
    assert len(clients) == 90 == flights.entry.silos
    assert clients.sizes.sum() == 33_654 == flights.entry.rows
    assert clients.sizes.min() >= 100
    assert clients.sizes.max() == 400
    assert clients.features[0].shape[1] == len(clients.columns) == flights.entry.features
    assert {float(v) for y in clients.targets for v in np.unique(y)} == {0.0, 1.0}


def test_it_is_small_and_its_provenance_travels_with_it():
    assert EMBEDDED.stat().st_size + EMBEDDED.with_suffix(".md").stat().st_size < 1_500_000
    assert "public domain" in EMBEDDED.with_suffix(".md").read_text()


def test_nothing_known_after_departure_is_a_feature(flights):
    table = read_embedded()
    assert not {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "tailnum"} & set(table.columns)
    assert not any("late" in column or "delay" in column for column in flights.clients.columns)
    features, target, _ = flight_features(table)
    flipped, _, _ = flight_features(table.with_columns(~pl.col("late")))
    np.testing.assert_array_equal(features, flipped)
    # Were the target coded into a feature, this would be near 1.
    assert max(abs(np.corrcoef(column, target)[0, 1]) for column in features.T) < 0.25


def test_features_are_scaled_without_looking_at_the_rows(flights):
    x, _ = flights.clients.pooled()
    assert np.abs(x).max() < 8
    assert np.all(np.abs(x.mean(axis=0)) < 0.6)
    table = read_embedded()
    whole, _, columns = flight_features(table)
    some, _, _ = flight_features(table[1000:1010])
    np.testing.assert_array_equal(whole[1000:1010], some)
    assert columns == flights.clients.columns


ROW = {"arr_delay": 20, "time_hour": "h", "minute": 30, "origin": "JFK", "carrier": "B6", "flight": 1, "dest": "BOS"}
ROW |= {"month": 3, "day": 6, "hour": 18, "distance": 187, "tailnum": "N1"}
WEATHER = {"origin": "JFK", "time_hour": "h", "temp": 57.0, "humid": 58.0, "wind_dir": 90, "wind_speed": 11.0}
WEATHER |= {"precip": 0.0, "pressure": 1018.0, "visib": 10.0}


def test_one_flight_by_hand():
    # Wednesday, 6 March 2013, 18:30, the 65th day of the year; an east wind of 11 miles an hour.
    joined = complete_flights(pl.DataFrame([ROW]), pl.DataFrame([WEATHER]))
    x, y, columns = flight_features(joined)
    row = dict(zip(columns, x[0], strict=True))
    assert y.tolist() == [1.0]
    assert row["time of day sin 1"] == pytest.approx(np.sin(2 * np.pi * 18.5 / 24))
    assert row["season cos 4"] == pytest.approx(np.cos(2 * np.pi * 4 * 65 / 365))
    assert row["log distance"] == pytest.approx((np.log(187) - 6.6) / 0.85)
    assert row["wind from east"] == pytest.approx((11 + 4) / 8)
    assert row["wind from north"] == pytest.approx(0, abs=1e-12)
    assert (row["temperature"], row["humidity"], row["wind speed"], row["rain"]) == (0, 0, 0, 0)
    assert [name for name in columns if row[name] == 1] == ["Wednesday", "from JFK", "carrier B6"]


@pytest.mark.parametrize(("delay", "late"), [(15, 0.0), (16, 1.0), (-30, 0.0)])
def test_late_is_more_than_15_minutes(delay, late):
    _, y, _ = flight_features(complete_flights(pl.DataFrame([ROW | {"arr_delay": delay}]), pl.DataFrame([WEATHER])))
    assert y.tolist() == [late]


def test_flights_without_arrival_or_weather_are_left_out_and_calm_is_not_missing():
    flights = pl.DataFrame([ROW, ROW | {"arr_delay": None}, ROW | {"time_hour": "unknown"}])
    assert len(complete_flights(flights, pl.DataFrame([WEATHER]))) == 1
    assert len(complete_flights(flights, pl.DataFrame([WEATHER | {"pressure": None}], infer_schema_length=None))) == 0
    calm = pl.DataFrame([WEATHER, WEATHER | {"origin": "LGA"}]).with_columns(
        wind_dir=pl.when(pl.col("origin") == "LGA").then("wind_dir"), wind_speed=pl.lit(0.0)
    )
    x, _, columns = flight_features(complete_flights(flights, calm))
    assert x[0, columns.index("wind from east")] == 0.5  # no component: (0 + 4)/8


def test_pooled_learning_beats_learning_alone_as_the_registry_says(flights):
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn measures the baseline")
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn measures the baseline")
    train, test = flights.clients.split(0.3, seed=0)
    model = linear_model.LogisticRegression(max_iter=5000).fit(*train.pooled())
    x, y = test.pooled()
    measured = {"auc": metrics.roc_auc_score, "log_loss": metrics.log_loss}
    for baseline in flights.entry.baselines:
        assert measured[baseline.metric](y, model.predict_proba(x)[:, 1]) == pytest.approx(baseline.pooled, abs=2e-3)
    assert len(test) == baseline.compared
