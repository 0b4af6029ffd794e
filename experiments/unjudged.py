"""Sentences of the paper without a claim, each with the reason, and contradictions within the paper.

Together with the experiments' claims, they cover all numbers and comparisons of the paper and its appendix.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class NotJudged:
    """A sentence or number of the paper without a claim, and the reason."""

    source: str
    statement: str
    reason: str


@dataclass(frozen=True)
class Erratum:
    """A contradiction within the paper or with its data. `claim` is the identity that shows it, if it is arithmetic."""

    source: str
    statement: str
    found: str
    claim: str = ""


NO_NUMBER = "the picture has no readable numbers; its orders and trends are judged"
OTHERS = "a quoted result of other authors"
BY_CONSTRUCTION = "true by construction; tests check it"
TOO_EXPENSIVE = "not run at desk, because it would double the cost of the grid; declared from lab on"

NO_SST = (
    "the data is not available; `gte_table4` uses 200 similar sentences from an installed wheel, after pre-training"
)
OTHER_MODELS = (
    "arithmetic and order of the printed rows are judged (G5, G6); the collections and models are not available"
)
ON_IMAGES = "no image models or data are used"

NOT_JUDGED = tuple(
    NotJudged(*line)
    for line in (
        ("Abstract", "applies to any contrastive learning dataset and any biencoder", "no set of runs can show 'any'"),
        ("Abstract", "state of the art on MTEB", "T2.i checks the printed rows; later models are not compared"),
        (
            "Abstract",
            "without score distillation, GPU sharing of examples or extremely large batches",
            "describes the method, not an effect. Ours has no distillation. GPUs that share a batch share its examples. "
            "The plain rows of Table 1 have batches of 16,384, as in the paper",
        ),
        ("§1", "neural retrieval can improve on statistical models", OTHERS),
        ("§1", "contextual batches can do without hard negatives", f"{BY_CONSTRUCTION}; no row of Table 1 has any"),
        (
            "§1",
            "the architecture improves on a baseline in all settings tested",
            "a summary; T1.c, T1.d, T7.a and F9.b judge each setting",
        ),
        ("§1", "the output has the same size and needs no more storage", BY_CONSTRUCTION),
        ("§2", "late interaction improves retrieval out of domain, and makes search slower and more complex", OTHERS),
        ("§2", "clustering queries before training improves performance", OTHERS),
        ("§2", "the sampling scheme trains late-interaction models as well", "such models are not part of the suite"),
        ("§2, §4.1, §6", "harder negatives approximate the gradient of maximum likelihood better", OTHERS),
        ("§3", "the other examples of a batch are negatives at no further cost", BY_CONSTRUCTION),
        (
            "§4.1",
            "'NFL' is rare in general text and common in sports",
            "an example; H.a and H.b measure the value of such words",
        ),
        ("§4.1", "objectives that draw a domain first, then a batch of it, are effective", OTHERS),
        ("§4.1", "the search for the hardest batches is intractable", "a mathematical statement, not a measurement"),
        ("§4.1", "over 70 % of the passages retrieved first in MS MARCO are false negatives", OTHERS),
        (
            "§4.1",
            "sparse vectors were tried for the clusters as well as dense ones",
            "the paper gives no result, and the suite has no sparse surrogate",
        ),
        (
            "§4.1",
            "the filter is critical to model accuracy",
            "'critical' gives no threshold; F4.a judges the gain of the filter, F12.a where it is largest",
        ),
        ("§4.1", "packing brings randomness into groups over epochs", BY_CONSTRUCTION),
        ("§4.2", "full access to the corpus would be difficult to scale", OTHERS),
        ("§4.2", "embeddings retain lexical information", OTHERS),
        (
            "§4.2",
            "a separate context for each text would multiply the training time, to many days",
            "nobody runs this setting; C.c computes the cost of a shared context",
        ),
        ("§4.2", "the first stage is computed once per batch, not once per text", BY_CONSTRUCTION),
        (
            "§4.2",
            "a shared context is feasible only because batches are clustered",
            "would need a separate context for each text, which is too expensive, as the paper says",
        ),
        (
            "§4.2",
            "the first stage adds no parameters or runtime to search, because its vectors are cached",
            f"{BY_CONSTRUCTION}: a context is embedded once, when it is set. The second stage reads these vectors as "
            "additional tokens of every query (C.c counts them)",
        ),
        ("§4.2", "sequence dropout improves generalisation", "the paper gives no comparison; `ablations` has one"),
        ("§4.2", "gradient caching allows larger batches at the cost of a second forward pass", BY_CONSTRUCTION),
        ("§4.2, §9.4", "context vectors have no position", BY_CONSTRUCTION),
        ("§5", "sizes, rates and lengths of the two settings", "settings, not results; the scales use them"),
        ("Figures 2 to 4, 8 to 14, 16, 18", "scores", NO_NUMBER),
        ("§6, Figure 2", "the correlation is strong", "the paper prints no r and no threshold; F2.a prints ours"),
        (
            "§6",
            "ArguAna and SciFact are more out of domain than others",
            "figure 8 prints the distance of each collection; T6.c has their sizes",
        ),
        (
            "§6, Figures 2 and 3",
            "the scores of figures 2 and 3 follow the second phase of training",
            "not declared at any scale, because each run of the grid would need a second phase. F2.a and F3 use the "
            "first phase. Figure 10 has some second phases",
        ),
        ("Figure 9", "the contextual model without the filter", f"{TOO_EXPENSIVE} (F9.e, F9.f)"),
        ("Figure 10", "after a first phase, at several batch sizes", "reduced to one batch size at our scales"),
        (
            "Figure 11",
            "negatives of the Nomic sets, mined without a filter",
            "ours exclude S(q, d), which may remove the effect; F11.b includes it",
        ),
        (
            "§6, Table 1",
            "the architecture generally matches or improves on all downstream datasets",
            "'generally' gives no threshold for a single dataset; T1.c judges the mean, T7.f counts the printed cells",
        ),
        (
            "Figure 13",
            "performance falls as batches grow too large",
            "concerns batches above 10,000, which no scale's grid has",
        ),
        (
            "§7, Figure 7",
            "cells within 1 point of their domain's best",
            "a matter of presentation; our figure prints the difference of each cell",
        ),
        ("§4", "less of an issue if retrieval is entirely in domain", "stated as 'arguably'; T1.i and H.d measure it"),
        (
            "§4.1",
            "the method is especially sensitive to false negatives, which are likelier in its batches",
            "S4.c judges that they are likelier, F12.a that the filter gains more with small clusters",
        ),
        (
            "§9.5",
            "a full context is better than a partial one",
            "F16.a judges the trend, F16.b the full context against none",
        ),
        (
            "§6",
            "no hard negatives are needed for the state of the art",
            "needs two runs at large; F11 judges the trend",
        ),
        ("Figure 5", "the dashed line: the best model of similar size", NO_NUMBER),
        (
            "Table 2",
            "rows of five other models",
            "their printed values are shown; these models are not evaluated again",
        ),
        (
            "§8",
            "harder batches improve training, the architecture reaches the state of the art",
            "a summary of T1.b, T1.e and T2.i",
        ),
        (
            "§9.1",
            "an epoch takes a day or two on 8 GPUs, with short texts a tenth or a twentieth of that",
            "running times of the authors' machine",
        ),
        ("§9.3", "contrastive losses and data parallelism interact badly", "reported without a measurement"),
        (
            "§9.3",
            "fewer hard negatives are needed, so sharing over GPUs may not be",
            "stated as 'may'; nothing is compared",
        ),
        (
            "§9.5",
            "a larger batch sees fewer different contexts, which may be why scores stagnate",
            "a possible cause; the paper has no experiment that separates it",
        ),
        ("§9.5", "Figure 14 is slightly noisy", "no number is given; F14.a and F14.b have intervals"),
        (
            "§9.6",
            "one cluster mixes county populations and criminal trials",
            "one cluster, described by its readers; T4.a counts over many",
        ),
        (
            "§9.10",
            "a larger first stage does not change the time of search",
            f"{BY_CONSTRUCTION}: its depth changes neither number nor size of the vectors that the second stage reads",
        ),
        ("GTE Figure 1", "the pipeline of two stages", "a diagram; `gte_table9` trains its two phases"),
        ("GTE Table 4", "accuracy on SST-2, after fine-tuning", NO_SST),
        (
            "GTE Table 10",
            "STS by the exponent of mixing",
            "no installed wheel has sentences scored by similarity; runs on MTEB fill the column",
        ),
        ("GTE Tables 5, 6", "scores on BEIR and MTEB, compared with other models", OTHER_MODELS),
        ("GTE §4.3", "the gap to GTR and Sentence-T5 is narrowed", "no earlier gap is given; G6.c has their averages"),
        ("GTE §3.4", "large batches are unnecessary in fine-tuning", "the reason for a choice; nothing is compared"),
        (
            "GTE Figure 3 (b)",
            "batches after fine-tuning",
            "the paper varies the batch of pre-training only; panels a and c have fine-tuned models here too",
        ),
        (
            "GTE §5.1",
            "no gain from batches above ten thousand",
            "GF3.c judges the direction; desk ends at batches of 128",
        ),
        ("GTE §5.2", "the loss fluctuates alike at every size, with the difficulty of batches", NO_NUMBER),
        ("GTE Tables 7, 13", "five of six programming languages", "the installed packages contain only Python"),
        (
            "GTE §6",
            "contamination by exact duplicates",
            "their data is not available; ours is audited when it is built",
        ),
        ("MRL Figures 2 to 8", "accuracy and mAP on images", f"{ON_IMAGES}; the same questions are asked of texts"),
        (
            "MRL §3 and §4",
            "nested masked language modelling (BERT)",
            "masked language modelling is not an objective of the suite",
        ),
        (
            "MRL Figure 2",
            "MRL-E trains the encoder through heads that share weights",
            "contrastive training has no head per width; M2.d fits such heads to fixed vectors",
        ),
        (
            "MRL Figure 7",
            "slimmable networks fall far behind at few dimensions",
            "such networks are not part of the suite",
        ),
        (
            "MRL Figure 8",
            "every combination lies above the line of single widths at its own cost",
            "M8.d judges a weaker statement: a score above that of the shortlist's width. The picture shows the costs",
        ),
        (
            "MRL Figure 8",
            "14 and 6 times faster in use",
            "running times of one machine and index with millions of vectors; M8.e checks the arithmetic. With our "
            "collections of hundreds of documents a shortlist is slower (`mrl_figure8_times`)",
        ),
        ("MRL Figure 9", "saliency (Grad-CAM) by width", f"{ON_IMAGES}; M9.a to M9.c ask what queries find by width"),
    )
)

ERRATA = tuple(
    Erratum(*line)
    for line in (
        ("§5, Table 5", "24 datasets", "Table 5 has 29 rows, and §9.8 says 29", "T5.e"),
        ("§9.8", "19 of the datasets are under 1 %", "20 are: Gooaq, printed as .01, has 0.53 %", "T5.d"),
        ("§5, §9.1, §9.8", "200 M, 235 M, 234 M pairs", "Table 5 has 234.6 M", "T5.f"),
        ("§9.9", "nine evaluation datasets", "Table 6 lists eight; the official code also has FiQA", "T6.a"),
        ("Table 4", "sixteen samples", "fifteen are printed", "T4.b"),
        ("Table 4, §5", "supervised data of 1.5 M pairs", "1.8 M pairs in §5", "T4.c"),
        (
            "§6",
            "improves all domains, incl. semantic similarity",
            "the baseline is not named. STS and pair classification are below nomic-embed-v1, which has the same "
            "backbone and pre-training data",
            "T2.h",
        ),
        ("§1, Table 2", "a model of fewer than 250 M parameters", "two separate stages of 137 M are 274 M", "T2.j"),
        ("Tables 2 and 7", "retrieval of the final model: 53.3", "54.0 in Table 7", "T2.k"),
        (
            "§9.12, Table 7",
            "largest improvements on ArguAna and TREC-COVID",
            "by gain they rank 14 and 1 of 15 in the first phase, and 1 and 3 in the second. In each phase FEVER gains "
            "more than one of them",
            "T7.b",
        ),
        (
            "GTE §5.4, Table 10",
            "α = 0.5 can improve results on all tasks",
            "retrieval is best at 0.3: 44.6 against 44.2",
            "G10.a",
        ),
        ("GTE §5.2, Table 8", "performance saturates at 20 k steps", "59.0, then 57.8, 57.7 and 59.0 again", "G8.a"),
        (
            "§4.1",
            "m obeys the triangle inequality, so that the clustering objective (3) bounds (2)",
            "m as written does not. A pair has distance 0 from itself with query and document exchanged. Going there "
            "and back costs 0, but m of the pair with itself is above 0. K-means gets each pair in both orders. Then a "
            "cluster bounds m of pairs that lie in it once in each order",
            "S4.d",
        ),
        (
            "§4.1",
            "L2 distances are equivalent to dot products of vectors of length 1",
            "true for single distances, not for sums: squared distances are equivalent, and they do not obey the "
            "triangle inequality",
            "S4.e",
        ),
        (
            "GTE §4.4, Tables 7 and 13",
            "all candidates are the challenging setting",
            "for Go, 88.1 among all candidates and 84.2 among a thousand",
            "G13.c",
        ),
        ("Figure 7", "the caption puts the input on the y-axis", "the text puts it on the x-axis"),
        ("Abstract", "no dataset-specific instructions", "§9.7: prefixes are written manually for each dataset"),
        (
            "Abstract, §6",
            "no hard negative mining",
            "§6: the best model has one hard negative per query, and no score without one is printed",
        ),
        (
            "§6, Table 1",
            "scores by dataset of its models are in the appendix",
            "the appendix has only Table 7, on MTEB's 15 retrieval tasks, not on the truncated BEIR",
        ),
        ("§1", "better in all settings tested", "five cells of Table 7 are lower"),
        (
            "§4.1",
            "objective (3) is a K-means problem",
            "K-means minimises squared distances between concatenated vectors, (3) sums of two distances",
        ),
        ("§5", "cluster sizes 64, 256, 1024, 4096, …, 2097152, 4194304", "2097152 is not a power of four"),
        (
            "§4.2",
            "the model does not include contextualized queries",
            "eq. 6 gives queries the context of documents. The sentence may mean that contexts contain no queries",
        ),
        ("Table 3", "the caption: neighbours of a single query", "§9.2 draws a document"),
        ("Table 1, §5", "a batch of 16384", "the batch sizes of §5 end at 4096"),
        ("Table 6", "5,000 queries of Quora", "Quora's development set has 5,000, its test set 10,000", "T6.d"),
        ("§9.9", "the top 1024 documents to each document", "to each query"),
    )
)
