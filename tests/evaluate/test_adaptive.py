"""Adaptive retrieval against brute force and FAISS's two-stage search, and its cost."""

from pathlib import Path

import faiss
import numpy as np
import pytest

from repro.analyses import adaptive
from repro.analyses.adaptive import Route, list_routes, measure
from repro.evaluate.prefixes import take_prefix
from repro.spec import base
from tests.analyses.by_hand import RandomVectors, make_inputs, make_numbered_collection, write_collections

WIDTH, NUM_DOCUMENTS, NUM_QUERIES = 32, 300, 11


def draw_vectors(count: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, WIDTH)) * np.linspace(2, 0.5, WIDTH)
    return take_prefix(vectors, WIDTH)


DOCUMENTS, QUERIES = draw_vectors(NUM_DOCUMENTS, 0), draw_vectors(NUM_QUERIES, 1)


def search(route: Route, k: int) -> tuple[np.ndarray, np.ndarray]:
    prefixes = {width: take_prefix(DOCUMENTS, width) for width in route.widths}
    index = faiss.IndexFlatIP(route.widths[0])
    index.add(np.ascontiguousarray(prefixes[route.widths[0]]))
    return adaptive.search(index, QUERIES, prefixes, route, k)


def search_by_brute_force(route: Route, k: int) -> list[list[int]]:
    ranking = []
    for query in QUERIES.astype(np.float64):
        rows = np.arange(NUM_DOCUMENTS)
        for width, pool in zip(route.widths, (*route.pools, k), strict=True):
            prefixes = DOCUMENTS[rows, :width].astype(np.float64)
            cosines = prefixes @ query[:width] / np.linalg.norm(prefixes, axis=1)
            rows = rows[np.argsort(-cosines, kind="stable")[:pool]]
        ranking.append(rows.tolist())
    return ranking


@pytest.mark.parametrize(
    "route", [*list_routes((8, 16, 32)), Route("short", (8, 16, 32), (40, 12))], ids=lambda r: r.name
)
def test_routes_match_brute_force(route: Route) -> None:
    places, scores = search(route, 10)
    assert places.tolist() == search_by_brute_force(route, 10)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_extra_hits_pass_every_pool() -> None:
    """A collection that removes self-hits requests one hit more than the last pool of the funnel has."""
    places, _ = search(Route("short", (8, 16, 32), (40, 10)), 11)
    assert places.tolist() == search_by_brute_force(Route("short", (8, 16, 32), (40, 11)), 11)


def test_cost_matches_paper() -> None:
    images = 1_281_167  # ImageNet-1K. Its search costs 128 times as much at 2048 dimensions as at 16
    whole = Route("whole", (2048,)).num_multiplications(images)
    assert whole / Route("width16", (16,)).num_multiplications(images) == 128
    two = Route("two", (16, 2048), (200,)).num_multiplications(images)
    assert two == 16 * images + 200 * 2048 and whole / two > 125
    small = Route("short", (8, 16), (200,)).num_multiplications(50)
    assert small == 50 * 8 + 50 * 16, "a pool has at most all documents"


def test_routes_are_pairs_and_funnel() -> None:
    routes = {route.name: route for route in list_routes((8, 16, 32, 64, 128, 256, 2048))}
    assert routes["funnel"] == Route("funnel", (16, 32, 64, 128, 256, 2048), (200, 100, 50, 25, 10))
    assert routes["from16"].widths == (16, 2048) and routes["from16to64"].pools == (200,)
    assert len(routes) == 7 + 21 + 1 and [route.name for route in list_routes((4,))] == ["whole"]


def test_record_has_every_route(tmp_path: Path) -> None:
    suite = write_collections(tmp_path, *(make_numbered_collection(name, 12, (0, 3)) for name in ("a", "b")))
    run = base("smoke", measure="adaptive", suite="desk", nested_sizes="8+32")
    measured = measure(make_inputs(run, suite=suite), RandomVectors(), tmp_path)
    metrics = measured.metrics
    assert metrics["desk+from8/mean/mflops"] == pytest.approx((12 * 8 + 12 * 32) / 1e6)
    # The pool of 200 has all documents.
    assert metrics["desk+from8/mean/ndcg_at_10"] == metrics["desk+whole/mean/ndcg_at_10"]
    assert len(measured.arrays["desk+width8"]) == 4 and metrics["desk+whole/a/queries_per_second"] > 0
