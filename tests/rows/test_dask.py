"""Rows on the workers of a cluster: the eraser of rows in memory, to the bit, whatever happens to the workers."""

import logging
import os
import pickle
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from at_layer import AtLayer
from laws import draw
from mute import MUtE, MuteError, open_matrix
from mute.evaluation.audit import audit
from mute.rivals import LEACE, QLEACE, KRaM
from mute.rows import memory as memory_of
from mute.rows.chunks import CHUNK_ROWS
from same_models import assert_same

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

pytestmark = [
    pytest.mark.filterwarnings("ignore::mute.WeakResultWarning"),
]

D = 6
SETTINGS: dict[str, Any] = {"router": "logistic", "random_state": 0}


def rows_of(n: int, dtype: Any = np.float32, n_classes: int = 2) -> tuple[NDArray, NDArray]:
    X, z = draw("skew", n // n_classes, D, seed=0, n_classes=n_classes)
    order = np.random.default_rng(1).permutation(len(X))
    return X[order].astype(dtype), z[order]


X, Z = rows_of(5 * CHUNK_ROWS + 500)
N = len(X)
TEXT = np.array(["f", "m"])[Z]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    settings = {"distributed.worker.daemon": True, "distributed.logging.distributed": "critical"}
    with dask.config.set(settings):
        for name in ("distributed", "distributed.worker", "distributed.nanny", "distributed.scheduler"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with (
            distributed.LocalCluster(
                n_workers=3,
                threads_per_worker=1,
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": ":0"},
                silence_logs=logging.CRITICAL,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


@pytest.fixture
def three(client: Any) -> Any:
    """All three workers, also after one was killed."""
    client.wait_for_workers(3, timeout=120)
    return client


@pytest.fixture(scope="module")
def expected() -> MUtE:
    return MUtE(3, **SETTINGS).fit(X, Z)


CHUNKINGS = {
    "chunks": (CHUNK_ROWS, D),
    "odd rows": (777, D),
    "columns, too": (3001, 2),
    "uneven": ((1, 5000, N - 5001), (1, 5)),
}


@pytest.mark.parametrize("chunks", CHUNKINGS)
def test_the_chunks_do_not_matter(chunks: str, three: Any, expected: MUtE) -> None:
    rows = da.from_array(X, chunks=CHUNKINGS[chunks])
    assert_same(MUtE(3, **SETTINGS).fit(rows, Z), expected)


def test_labels_of_all_kinds(three: Any) -> None:
    import dask.dataframe as dd
    import pandas as pd

    rows = da.from_array(X, chunks=(2500, D))
    expected = MUtE(2, **SETTINGS).fit(X, TEXT)
    given = {
        "column": da.from_array(TEXT[:, None], chunks=(4000, 1)),
        "array": da.from_array(TEXT, chunks=1999),
        "series": dd.from_pandas(pd.Series(TEXT), npartitions=3),
        "category": dd.from_pandas(pd.Series(TEXT, dtype="category"), npartitions=4),
    }
    for name, labels in given.items():
        found = MUtE(2, **SETTINGS).fit(rows, labels)
        try:
            assert_same(found, expected)
        except AssertionError as error:
            raise AssertionError(f"with labels as {name}") from error
    assert_same(MUtE(2, **SETTINGS).fit(rows, None, concept=given["array"]), expected)


def test_a_data_frame(three: Any) -> None:
    import dask.dataframe as dd
    import pandas as pd

    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(D)])
    rows = dd.from_pandas(frame, npartitions=4)
    eraser = MUtE(2, **SETTINGS).fit(rows, dd.from_pandas(pd.Series(TEXT), npartitions=3))
    expected = MUtE(2, **SETTINGS).fit(frame, TEXT)
    assert_same(eraser, expected)
    assert eraser.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_array_equal(eraser.transform(rows).compute(), expected.transform(frame))
    texts = dd.from_pandas(pd.Series(TEXT), npartitions=3)
    erased = eraser.transform(rows.to_dask_array(lengths=True), concept=texts)
    np.testing.assert_array_equal(erased.compute(), expected.transform(frame, concept=TEXT))
    assert eraser.feature_names_in_.tolist() == list(frame.columns)
    reordered = rows[["c1", "c0", *frame.columns[2:]]]
    np.testing.assert_array_equal(eraser.transform(reordered).compute(), expected.transform(frame))
    with pytest.raises(MuteError, match="X has no column 'c1', which the model was fitted on"):
        eraser.transform(rows[["c0", *frame.columns[2:]]])
    with_labels = rows.assign(z=dd.from_pandas(pd.Series(Z), npartitions=4))
    assert_same(
        MUtE(2, **SETTINGS).fit(with_labels[list(frame.columns)], with_labels["z"]), MUtE(2, **SETTINGS).fit(frame, Z)
    )


@pytest.mark.parametrize(
    ("layers", "n_classes", "dtype"),
    [("auto", 3, np.float64), pytest.param("auto", 2, np.float32, marks=pytest.mark.slow)],
)
def test_other_settings(layers: Any, n_classes: int, dtype: Any, three: Any) -> None:
    x, z = rows_of(4000, dtype, n_classes)
    settings = SETTINGS | {"max_iterations": n_classes}
    assert_same(
        MUtE(layers, **settings).fit(da.from_array(x, chunks=(999, 4)), da.from_array(z, chunks=1500)),
        MUtE(layers, **settings).fit(x, z),
    )


def test_whole_numbers_and_half_precision(three: Any) -> None:
    for x in (np.round(10 * X).astype(np.int16), X.astype(np.float16)):
        found = MUtE(2, **SETTINGS).fit(da.from_array(x, chunks=(4000, D)), Z)
        assert_same(found, MUtE(2, **SETTINGS).fit(x, Z))


@pytest.mark.parametrize("method", [LEACE(), QLEACE(router="logistic", random_state=0)], ids=lambda m: type(m).__name__)
def test_methods_of_moments(method: Any, three: Any) -> None:
    from sklearn.base import clone

    rows = da.from_array(X.astype(np.float64), chunks=(3000, D))
    expected = clone(method).fit(X.astype(np.float64), Z)
    found = clone(method).fit(rows, Z)
    np.testing.assert_allclose(found.transform(rows).compute(), expected.transform(X.astype(np.float64)), atol=1e-9)
    assert found.fitted_on_ == expected.fitted_on_


def test_a_matrix_in_files(three: Any, expected: MUtE, tmp_path: Path) -> None:
    from mute.rows.dask import to_dask

    np.save(tmp_path / "x.npy", X)
    assert_same(MUtE(3, **SETTINGS).fit(to_dask(open_matrix(tmp_path / "x.npy")), Z), expected)


def kill_one(client: Any) -> None:
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


@pytest.mark.parametrize("layer", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_worker_is_killed_in_the_middle_of_a_fit(layer: int, three: Any) -> None:
    eraser = MUtE(6, **SETTINGS)
    eraser.set_callbacks(AtLayer(layer, lambda: kill_one(three)))
    rows = da.from_array(X, chunks=(2000, D))
    assert_same(eraser.fit(rows, da.from_array(Z, chunks=2000)), MUtE(6, **SETTINGS).fit(X, Z))


def slowly(block: NDArray) -> NDArray:
    time.sleep(0.3)
    return block


def test_a_worker_is_killed_in_the_middle_of_a_transform(three: Any, expected: MUtE) -> None:
    rows = da.from_array(X, chunks=(1000, D)).map_blocks(slowly, dtype=X.dtype)
    erased = three.compute(expected.transform(rows))
    time.sleep(0.5)
    kill_one(three)
    np.testing.assert_array_equal(erased.result(timeout=120), expected.transform(X))


def test_wrong_numbers_are_named_by_their_rows(three: Any) -> None:
    spoiled = X.copy()
    spoiled[7003, 2] = np.nan
    rows = da.from_array(spoiled, chunks=(1000, D))
    eraser = MUtE(2, router=None, random_state=0).fit(X[:500], Z[:500])
    before = eraser.transform(X, concept=Z)
    with pytest.raises(MuteError, match=r"X contains NaN in 1 row \(row 7003\)"):
        eraser.fit(rows, Z)
    np.testing.assert_array_equal(eraser.transform(X, concept=Z), before)
    with pytest.raises(MuteError, match=r"rows 7000 to 7999: X contains NaN in 1 row \(row 3\)"):
        eraser.transform(rows, concept=Z).compute()


def announced(blocks: list[NDArray], shapes: list[tuple[int, ...]], dtype: Any) -> Any:
    """Blocks under shapes that they may not have."""
    parts = [da.from_delayed(dask.delayed(b), s, dtype) for b, s in zip(blocks, shapes, strict=True)]
    return da.concatenate(parts)


@pytest.mark.parametrize("shape", [(999, D), (1001, D), (1000, D - 1), (1000, D + 1)])
def test_blocks_that_are_not_what_was_announced(shape: tuple[int, int], three: Any) -> None:
    wrong = np.resize(X, shape)
    rows = announced([X[:1000], wrong, X[2000:3000]], [(1000, D)] * 3, X.dtype)
    message = rf"rows 1000 to 1999 has shape \({shape[0]}, {shape[1]}\) where \(1000, {D}\) was announced; correct"
    with pytest.raises(MuteError, match=message):
        MUtE(2, **SETTINGS).fit(rows, Z[:3000])


@pytest.mark.parametrize("length", [999, 1001])
def test_labels_that_are_not_as_many_as_announced(length: int, three: Any) -> None:
    labels = announced([Z[:1000], np.resize(Z, length), Z[2000:3000]], [(1000,)] * 3, Z.dtype)
    with pytest.raises(MuteError, match=r"labels"):
        MUtE(2, **SETTINGS).fit(da.from_array(X[:3000], chunks=(1000, D)), labels)


def test_labels_that_cannot_be_used(three: Any) -> None:
    rows = da.from_array(X, chunks=(1000, D))
    missing = TEXT.astype(object)
    missing[7003] = None
    for labels in (da.from_array(missing, chunks=1000), missing):
        with pytest.raises(MuteError, match=r"missing or infinite labels .* in 1 row"):
            MUtE(2, **SETTINGS).fit(rows, labels)
    with pytest.raises(MuteError, match=f"y has {N - 1} labels for {N} rows"):
        MUtE(2, **SETTINGS).fit(rows, da.from_array(Z[1:], chunks=1000))
    with pytest.raises(MuteError, match="y must be one-dimensional"):
        MUtE(2, **SETTINGS).fit(rows, da.from_array(X, chunks=1000))
    with pytest.raises(MuteError, match="labels are missing"):
        MUtE(2, **SETTINGS).fit(rows)
    with pytest.raises(MuteError, match="only one class"):
        MUtE(2, **SETTINGS).fit(rows, da.zeros(N, chunks=1000, dtype=int))


def test_rows_that_cannot_be_used(three: Any) -> None:
    with pytest.raises(MuteError, match="must be a matrix"):
        MUtE(2).fit(da.zeros(10, chunks=5), Z[:10])
    with pytest.raises(MuteError, match="must hold numbers"):
        MUtE(2).fit(da.from_array(X.astype(str), chunks=1000), Z)
    with pytest.raises(MuteError, match="at least one row and one column"):
        MUtE(2).fit(da.zeros((0, 3)), [])
    with pytest.raises(MuteError, match="all rows in memory"):
        KRaM().fit(da.from_array(X, chunks=1000), Z)


def test_a_class_that_most_chunks_do_not_have(three: Any) -> None:
    z = np.zeros(N, int)
    z[5000:5400], z[:3000] = 2, 1
    x = X + z[:, None].astype(np.float32)
    found = MUtE(3, **SETTINGS).fit(da.from_array(x, chunks=(1000, D)), da.from_array(z, chunks=1000))
    assert_same(found, MUtE(3, **SETTINGS).fit(x, z))


def test_chunks_of_unknown_length(three: Any, expected: MUtE) -> None:
    rows = da.from_array(X, chunks=(1000, D))
    some = rows[da.from_array(np.arange(N) >= 0, chunks=1000)]
    assert np.isnan(some.shape[0])
    assert_same(MUtE(3, **SETTINGS).fit(some, Z), expected)
    np.testing.assert_array_equal(expected.transform(some).compute(), expected.transform(X))
    np.testing.assert_array_equal(expected.transform(some, concept=Z).compute(), expected.transform(X, concept=Z))


def counted(block: NDArray, path: str) -> NDArray:
    with open(path, "a") as file:
        file.write("x")
    return block


def test_transform_is_lazy(three: Any, expected: MUtE, tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.touch()
    rows = da.from_array(X, chunks=(3000, D)).map_blocks(counted, path=str(path), dtype=X.dtype, meta=X[:0])
    made = [
        expected.transform(rows),
        expected.transform(rows, concept=Z),
        expected.counterfactual(rows, 1),
        expected.inverse_transform(rows, concept=da.from_array(Z, chunks=100)),
    ]
    assert all(isinstance(m, da.Array) and m.shape == X.shape and m.dtype == X.dtype for m in made)
    assert path.read_text() == "", "rows were computed"
    np.testing.assert_array_equal(made[0][:10].compute(), expected.transform(X)[:10])
    assert path.read_text() == "x"


def test_labels_for_each_row(three: Any, expected: MUtE) -> None:
    rows = da.from_array(X, chunks=(3001, 2))
    other = 1 - Z
    for labels, target in (
        (Z, other),
        (da.from_array(Z, chunks=999), da.from_array(other, chunks=500)),
        (Z, other.tolist()),
    ):
        moved = expected.counterfactual(rows, target, concept=labels)
        np.testing.assert_array_equal(moved.compute(), expected.counterfactual(X, other, concept=Z))
        erased = expected.transform(rows, concept=labels)
        np.testing.assert_array_equal(erased.compute(), expected.transform(X, concept=Z))
        back = expected.inverse_transform(erased, concept=labels)
        np.testing.assert_allclose(back.compute(), X, atol=1e-3)
    np.testing.assert_array_equal(expected.counterfactual(rows, 1).compute(), expected.counterfactual(X, 1))
    for wrong in (Z[1:], da.from_array(Z[1:], chunks=1000)):
        with pytest.raises(MuteError, match=f"concept has {N - 1} labels for {N} rows"):
            expected.transform(rows, concept=wrong)
    with pytest.raises(MuteError, match="X has 3 features"):
        expected.transform(rows[:, :3])
    with pytest.raises(MuteError, match=r"rows \d+ to \d+: concept has the label 9"):
        expected.transform(rows, concept=np.full(N, 9)).compute()


def bytes_sent(n: int, client: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of all that goes to the workers and comes back from them, layer by layer."""
    sent: list[int] = []
    real = client.submit

    def submit(work: Any, *given: Any, **more: Any) -> Any:
        if work.__name__ == "_given":
            sent.append(len(pickle.dumps(given)))
        return real(work, *given, **more)

    def run(self: Any, maps: Any, reduction: Any) -> Any:
        out = run_before(self, maps, reduction)
        sent.append(len(pickle.dumps(out)))
        return out

    from mute.rows.dask import DaskStore

    run_before = DaskStore._run
    layers: list[list[int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(client, "submit", submit)
        patch.setattr(DaskStore, "_run", run)
        eraser = MUtE(5, router=None, random_state=0, diagnostics=False)

        def mark(name: str, done: int, total: int) -> None:
            layers.append(sent.copy())
            sent.clear()

        eraser.set_callbacks(mark)
        x = np.random.default_rng(0).gamma(2, size=(n, D)).astype(np.float32)
        eraser.fit(da.from_array(x, chunks=(CHUNK_ROWS, D)), np.arange(n) % 2)
    return [sum(layer) for layer in layers[1:]]


def test_what_travels_does_not_grow_with_the_rows(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (bytes_sent(n * 6 * CHUNK_ROWS, three, monkeypatch) for n in (1, 4))
    # Covariances of the classes, which serve for two layers, then marginals.
    assert [a > 0 for a in few] == [a > 0 for a in many] == [True, False, True, True]
    for a, b in zip(filter(None, few), filter(None, many), strict=True):
        # Some of the rows, about a thousand of any number, tell by their lengths how far rows are from one another;
        # that is a few kilobytes and varies by chance.
        assert abs(a - b) < 0.05 * a
        assert b < 24 * CHUNK_ROWS * D * 4 / 2, "as much as the rows themselves"


def test_without_a_client_the_work_is_done_here(
    expected: MUtE, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mute.rows.dask.active_client", lambda: None)
    rows = da.from_array(X, chunks=(3001, 2))
    with dask.config.set(scheduler="threads"):
        for scratch, memory in (("auto", 10**12), ("auto", X.nbytes), (tmp_path, 10**12), (None, X.nbytes)):
            monkeypatch.setattr(memory_of, "available_memory", lambda memory=memory: memory)
            for labels in (Z, da.from_array(Z, chunks=1000)):
                assert_same(MUtE(3, scratch=scratch, **SETTINGS).fit(rows, labels), expected)
        spoiled = X.copy()
        spoiled[7003, 2] = np.inf
        with pytest.raises(MuteError, match=r"X contains infinity in 1 row \(row 7003\)"):
            MUtE(2).fit(da.from_array(spoiled, chunks=(1000, D)), Z)
        np.testing.assert_array_equal(expected.transform(rows).compute(), expected.transform(X))


def test_a_fit_on_a_cluster_goes_on(three: Any, tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    rows = da.from_array(X, chunks=(3001, D))
    eraser = MUtE(5, resume=tmp_path, **SETTINGS)
    eraser.set_callbacks(AtLayer(4, stop))
    with pytest.raises(KeyboardInterrupt):
        eraser.fit(rows, da.from_array(Z, chunks=1000))
    assert len(list(tmp_path.glob("layer-*"))) == 3
    assert_same(MUtE(5, resume=tmp_path, **SETTINGS).fit(rows, Z), MUtE(5, **SETTINGS).fit(X, Z))


def test_nothing_stays_on_the_workers(three: Any) -> None:
    before = {key for keys in three.has_what().values() for key in keys}
    MUtE(2, **SETTINGS).fit(da.from_array(X, chunks=(3001, D)), Z)
    end = time.monotonic() + 60
    while left := {key for keys in three.has_what().values() for key in keys} - before:
        assert time.monotonic() < end, left
        time.sleep(0.1)


def test_an_audit(three: Any, expected: MUtE) -> None:
    settings: dict[str, Any] = {"adversaries": ["logistic"], "most_rows": 300, "random_state": 0}
    new = X[::-1] + np.float32(0.1)
    found = audit(expected, da.from_array(new, chunks=(5001, D)), Z[::-1], **settings)
    assert found.to_dict()["privacy"] == audit(expected, new, Z[::-1], **settings).to_dict()["privacy"]
    with pytest.raises(MuteError, match="the very rows that the eraser was fitted on"):
        audit(expected, da.from_array(X, chunks=(5001, D)), Z, **settings)


def test_two_clusters_side_by_side(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mute.rows.dask.resolve_threads", lambda _: 1)
    from mute.rows.dask import active_client, cluster

    with socket.socket() as taken:
        with suppress(OSError):  # somebody else has it: as good
            taken.bind(("127.0.0.1", 8787))  # where schedulers like to serve
            taken.listen()
        with cluster("local") as own:
            assert active_client() is own
            assert own.submit(sum, [1, 2]).result(timeout=60) == 3
    assert active_client() is three
