"""Seeds and cluster sizes that are run because a claim was restated after its records had been seen.

A claim that was worded with records at hand is judged by records that nobody had looked at. They are all declared here:
an empty tuple takes a block out again, and nothing else has to change.
"""

from typing import Any

from repro.spec import by_scale

LOOKED_AT = (0, 1, 2)
"""Seeds whose records at `desk` had been looked at when the claims were restated."""
PRINTED = tuple(range(8))
"""And those that Table 1 had printed, under a wrong corpus too, when a claim about that was given a δ."""
STATED: dict[str, Any] = {"stated": "2026-11-22"}
"""What a claim says of itself that was added then; `ADDED` when there were records at desk, `RESTATED` when its
wording changed."""
ADDED: dict[str, Any] = STATED | {"seen_seeds": LOOKED_AT}
RESTATED: dict[str, Any] = ADDED | {"version": 2}
PAIRED: dict[str, Any] = ADDED | {"version": 3}
"""Of a restated claim that has since been judged seed by seed, on what its runs do not have in common."""
BOUNDED: dict[str, Any] = ADDED | {"has_new_delta": True}
"""Of a claim that was given a δ with records at hand: NO EFFECT is said by fresh seeds alone."""
LOOKED_AGAIN: dict[str, Any] = {"num_looks": 2}
"""Of a claim that was judged at desk, and judged again with more seeds beside those it had."""
HALF_A_POINT = 0.005
"""The δ of an order: the smallest gain that the paper's Table 1 counts as one is 0.7 points (62.4 to 63.1)."""
A_TENTH_A_DOUBLING = 0.001
"""The δ of a slope: over the four to six doublings of an axis at desk about half a point."""

TABLE1 = tuple(range(3, 8))
"""More seeds of Table 1's contextual batches, with either architecture, at desk."""
ROWS_AT_LAB = (4, 5, 6)
"""And of its four rows at lab, a second look for T1.e and T1.k, which were said to need two and three. Contextual
batches have these seeds already, as models of context_emergence; the plain rows were not run with them."""
ROWS_AGAIN: dict[str, Any] = {"num_looks": by_scale({"lab": 2})}
OTHER_ROWS: tuple[int, ...] = ()
"""More seeds of its rows of random batches and of one fine domain a batch, which no claim is judged on."""
SOURCE_ROWS = (0, *TABLE1)
"""Seeds of its rows of one source a batch, at desk: seed 0 is what a reader's own machine runs of every row."""
GRID: tuple[int, ...] = ()
GRID_CLUSTERS = (64, 128, 256, 512, 1024, 4096)
"""Filtered biencoders behind figures 2, 3, 4, 12 and 13: seeds and cluster sizes at desk, with every batch size."""
PACKING = tuple(range(3, 13))
"""Both orders of packing at the smallest clusters, at desk."""
SUPERVISED = (3, 4, 5, 6)
"""Figure 11 at desk: as many seeds as F11.a was said to need."""
BY_CLUSTER = (0, 3, 4, 5, 6)
"""Figure 10 at desk, after a first phase that all cluster sizes share; seed 0 is what a reader's own machine runs."""
OVERFITTED = (0, 3, 4, 5, 6)
"""Figure 5 at desk, on few pairs and at the whole rate, as nobody had run it before; seed 0 is a reader's own."""
MEASURED = (3, 4, 5)
"""Tables 3 and 4 and what §4.1 says of false negatives: draws of documents and clusters; seconds each, no training."""
NEIGHBOURS = (*MEASURED, 6, 7)
"""Table 3's draws: two more, which `plan --power` found enough for T3.a."""
TASKS = (3, 4, 5)
"""Table 2: more of Table 1's contextual models, which `plan --power` found enough for T2.b: one for its second look,
two for its third. T2.e, worded with seeds 0 to 2 at hand and then judged on these and 3, has a second look on the fresh
ones."""
TASKS_AGAIN: dict[str, Any] = {"num_looks": 3}
SCORED = tuple(range(8, 16))
"""Figures 7, 15 and 16: contextual models that Table 1 has not. The last four were added when F7.a and F16.a, on
8 to 11, were said to need three and four more."""
CROSSED = (*SCORED, *range(16, 25))
"""Figure 7 alone: nine more, which F7.a on 8 to 15 was said to need."""
REPACKED = (3, 4)
"""Figure 6: packings, nothing is trained."""
UNFILTERED: tuple[int, ...] = ()
"""Biencoders without the filter in the grid of figure 3. F3.b is said to need six fresh ones, (3, 4, 5, 6, 7, 8)."""
DEPTHS = tuple(range(3, 12))
"""First stages of each depth at desk. The last four were added when F17.a and F17.b were said to need them."""
DOUBLED = tuple(range(3, 10))
"""GTE's batch sizes at desk: the seven that GF3.c was said to need beside the first three."""
READING = (4, 5, 6, 7, 8)
"""All three models of context_emergence at lab after the steps that all of them have, and the paper's architecture
after the fewest. The paper's had 4 to 6 at a second look (E.e was said to need two, E.g one), word frequencies 4 and 5
(E.a and E.d one); the others are of a third, for E.c, E.d, E.f and E.h, which were said to need 8 to 17: what a day of
two cores affords."""
LOOKED_AGAIN_AT_LAB: dict[str, Any] = {"num_looks": by_scale({"lab": 3})}
LOOKED_AGAIN_AT_BOTH: dict[str, Any] = {"num_looks": by_scale({"desk": 2, "lab": 3})}
FREQUENCY = (3, 4, 5, 6)
"""The contextual model that is handed word frequencies, after the most steps: what E.b was said to need."""
NESTED = (3, 4, 5, 6)
"""The nested model and the plain one of MRL's figures 2 and 7: what M2.b was said to need."""
WIDTHS = (3, 4)
"""Nested models with word frequencies, under either loss: what W.b and W.d were said to need."""
PLANTED = tuple(range(3, 16))
"""The planted corpus with and without its context: both architectures trained longest. The last eight were added when
own.a, on 3 to 7, had become undecided."""
BY_BATCHES = (0, *TABLE1)
"""Both models of Table 1 on batches of one domain, at desk: seed 0 is what a reader's own machine runs."""
BY_BATCHES_AT_LAB = (4, 5, 6)
"""And at lab, where the other rows have these seeds; 1 to 3 were what the claims were worded from."""
