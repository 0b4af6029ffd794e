"""Sentences of the paper without a claim, each with the reason, and contradictions within the paper.

Together with the experiments' claims, they cover all numbers and comparisons of the paper and its appendix.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class NotJudged:
    """A sentence or number of the paper without a claim, and the reason."""

    source: str
    says: str
    reason: str


@dataclass(frozen=True)
class Erratum:
    """A contradiction within the paper or with its data. `claim` is the identity that shows it, if it is arithmetic."""

    source: str
    says: str
    found: str
    claim: str = ""


NO_NUMBER = "the picture has no readable number; what it shows is judged as an order or a trend"
OTHERS = "a result of others, quoted"
BY_CONSTRUCTION = "so by construction; tests hold the code to it"
TOO_DEAR = "not run at desk, where it would be as dear as the rest of the grid together; declared from lab on"

NO_SST = "not at hand: `gte_table4` has 200 such sentences that an installed wheel carries, after pre-training"
OTHER_MODELS = (
    "arithmetic and order of the printed rows are judged (G5, G6); the collections and models are not at hand"
)
ON_IMAGES = "no image model or data is here"

NOT_JUDGED = tuple(
    NotJudged(*line)
    for line in (
        ("Abstract", "applies to any contrastive learning dataset and any biencoder", "no set of runs can show 'any'"),
        ("Abstract", "state of the art on MTEB", "T2.i holds the printed rows to it; later models are not compared"),
        (
            "Abstract",
            "without score distillation, GPU sharing of examples or extremely large batches",
            "says what was left out, not what it would have done; ours have no distillation, but GPUs that share a "
            "batch share its examples, and Table 1's plain rows have batches of 16384, as the paper's",
        ),
        ("§1", "neural retrieval can improve on statistical models", OTHERS),
        ("§1", "contextual batches can do without hard negatives", f"{BY_CONSTRUCTION}; no row of Table 1 has any"),
        (
            "§1",
            "the architecture improves on a baseline in all settings tested",
            "says again what T1.c, T1.d, T7.a and F9.b judge setting by setting",
        ),
        ("§1", "the output has the same size and asks for no more storage", BY_CONSTRUCTION),
        ("§2", "late interaction improves retrieval out of domain, and makes search slower and more complex", OTHERS),
        ("§2", "clustering queries before training improves performance", OTHERS),
        ("§2", "the sampling scheme trains late-interaction models as well", "no such model is built here"),
        ("§2, §4.1, §6", "harder negatives approximate the gradient of maximum likelihood better", OTHERS),
        ("§3", "the other examples of a batch are negatives at no further cost", BY_CONSTRUCTION),
        (
            "§4.1",
            "'NFL' is rare in general text and common in sports",
            "an example; H.a and H.b count what such words are worth",
        ),
        ("§4.1", "objectives that draw a domain first, then a batch of it, are effective", OTHERS),
        ("§4.1", "the search for the hardest batches is intractable", "mathematics, not a measurement"),
        ("§4.1", "over 70 % of the passages retrieved first in MS MARCO are false negatives", OTHERS),
        (
            "§4.1",
            "sparse vectors were tried for the clusters as well as dense ones",
            "no result is given, and no surrogate here is sparse",
        ),
        (
            "§4.1",
            "the filter is critical to model accuracy",
            "'critical' sets no bar; F4.a judges what the filter gains, F12.a where it gains most",
        ),
        ("§4.1", "packing brings randomness into groups over epochs", BY_CONSTRUCTION),
        ("§4.2", "full access to the corpus would be difficult to scale", OTHERS),
        ("§4.2", "embeddings retain lexical information", OTHERS),
        (
            "§4.2",
            "contexts of their own would multiply the time of training by their number, where it takes many days",
            "arithmetic of what nobody runs; C.c has that of the context that is shared",
        ),
        ("§4.2", "the first stage is computed once a batch, not once a text", BY_CONSTRUCTION),
        (
            "§4.2",
            "a shared context is feasible only because batches are clustered",
            "needs contexts of their own for each text, which nobody can afford: the paper's point",
        ),
        (
            "§4.2",
            "the first stage adds no parameters or runtime to search, its vectors being cached",
            f"{BY_CONSTRUCTION}: a context is embedded once, when it is set; the second stage reads these vectors "
            "with every query, as many more tokens (C.c counts them)",
        ),
        ("§4.2", "sequence dropout improves generalisation", "the paper does not compare, nor do we"),
        ("§4.2", "gradient caching fits larger batches at twice the forward passes", BY_CONSTRUCTION),
        ("§4.2, §9.4", "context vectors have no position", BY_CONSTRUCTION),
        ("§5", "sizes, rates and lengths of the two settings", "settings, not results: they are the scales"),
        ("Figures 2, 4, 8, 10 to 14, 16, 18", "scores", NO_NUMBER),
        ("Figures 3 and 9", "scores in the cells", NO_NUMBER),
        ("§6, Figure 2", "the correlation is strong", "no r is printed, and no bar is given; F2.a prints ours"),
        (
            "§6",
            "ArguAna and SciFact are more out of domain than others",
            "figure 8 prints how far they are, one number each; T6.c has their size",
        ),
        (
            "§6, Figures 2 and 3",
            "figure 2's scores, by its caption, and figure 3's, too, after the second phase of training",
            "declared at no scale: a second phase of each training of the grid; F2.a and F3 are of the first, figure "
            "10 has some of the second",
        ),
        ("Figure 9", "the contextual model without the filter", f"{TOO_DEAR} (F9.e, F9.f)"),
        ("Figure 10", "after a first phase, at several batch sizes", "at our scales at one batch size"),
        (
            "Figure 11",
            "negatives of the Nomic sets, mined without a filter",
            "ours leave S(q, d) out, which may remove the effect; F11.b has them all",
        ),
        (
            "§6, Table 1",
            "the architecture generally matches or improves on all downstream datasets",
            "'generally' sets no bar for one dataset; T1.c judges the mean, T7.f counts the cells that are printed",
        ),
        ("Figure 13", "performance falls as batches grow too large", "beyond 10,000, which no scale's grid has"),
        ("§7, Figure 7", "cells within 1 point of their domain's best", "our figure prints each cell's difference"),
        ("§4", "less of an issue where retrieval is wholly in domain", "'arguably'; T1.i and H.d ask how much less"),
        (
            "§4.1",
            "the method is especially sensitive to false negatives, which are likelier in its batches",
            "S4.c judges that they are likelier, F12.a that the filter gains more where clusters are small",
        ),
        ("§9.5", "a full context is better than a partial one", "F16.a has the trend, F16.b full against none"),
        ("§6", "no hard negatives are needed for the state of the art", "needs two runs at large; F11 has the trend"),
        ("Figure 5", "the dashed line: the best model of similar size", NO_NUMBER),
        (
            "Table 2",
            "rows of five other models",
            "their printed values are shown; these models are not evaluated again",
        ),
        (
            "§8",
            "harder batches improve training, the architecture reaches the state of the art",
            "says again T1.b, T1.e and T2.i",
        ),
        ("§9.1", "8 GPUs take a day or two an epoch, short texts a tenth or twentieth of it", "times of one machine"),
        ("§9.3", "contrastive losses and data parallelism interact badly", "experience, told without a measurement"),
        ("§9.3", "fewer hard negatives are needed, so sharing over GPUs may not be", "'may'; nothing is compared"),
        (
            "§9.5",
            "a larger batch sees fewer different contexts, which may be why scores stagnate",
            "a possible cause; the experiment that would separate it is not in the paper",
        ),
        ("§9.5", "Figure 14 is slightly noisy", "no number is given; F14.a and F14.b have their intervals"),
        ("§9.6", "one cluster mixes county populations and criminal trials", "one cluster, read by eye; T4.a counts"),
        (
            "§9.10",
            "a larger first stage leaves the time of search as it is",
            f"{BY_CONSTRUCTION}: its depth changes neither number nor size of the vectors that the second stage reads",
        ),
        (
            "§9.10",
            "the size of the second stage matters much more than that of the first",
            "the paper varies the first alone, and so does F17",
        ),
        ("GTE Figure 1", "the pipeline of two stages", "a drawing; its two phases are `gte_table9`"),
        ("GTE Table 4", "accuracy on SST-2, after fine-tuning", NO_SST),
        ("GTE Tables 5, 6", "scores on BEIR and MTEB, compared with other models", OTHER_MODELS),
        ("GTE §4.3", "the gap to GTR and Sentence-T5 is narrowed", "no gap before is named; G6.c has their averages"),
        ("GTE §3.4", "large batches are unnecessary in fine-tuning", "their reason for a choice; nothing is compared"),
        (
            "GTE Figure 3",
            "the same after fine-tuning",
            "not run: at desk a second phase moves a score less than a seed",
        ),
        ("GTE §5.1", "no gain from batches above ten thousand", "GF3.c has the direction; desk stops at 128"),
        ("GTE §5.2", "the loss fluctuates alike at every size, with the difficulty of batches", NO_NUMBER),
        ("GTE Tables 7, 13", "five of six programming languages", "the installed packages are Python"),
        ("GTE §6", "contamination by exact duplicates", "their data is not here; ours is audited when it is built"),
        ("MRL Figures 2 to 8", "accuracy and mAP on images", f"{ON_IMAGES}; the same questions of texts"),
        (
            "MRL Figure 2",
            "with heads that share weights (MRL-E) as accurate from 16 dimensions on",
            "heads of a classifier; a contrast of pairs has none for each width",
        ),
        ("MRL Figure 7", "slimmable networks fall far behind at few dimensions", "no such network is built here"),
        (
            "MRL Figure 8",
            "every combination lies above the line of single widths at its own cost",
            "M8.d asks for less, a score above that of the shortlist's width; the picture has the costs",
        ),
        (
            "MRL Figure 8",
            "14 and 6 times faster in use",
            "times of one machine and index, on millions of vectors; M8.e has the arithmetic; on our collections of "
            "hundreds a shortlist is slower by the clock (`mrl_figure8_times`)",
        ),
        ("MRL Figure 9", "what is predicted and looked at by width", ON_IMAGES),
    )
)

ERRATA = tuple(
    Erratum(*line)
    for line in (
        ("§5, Table 5", "24 datasets", "29 rows, and 29 in §9.8", "T5.e"),
        ("§9.8", "19 of the datasets are under 1 %", "20 are: Gooaq, printed as .01, has 0.53 %", "T5.d"),
        ("§5, §9.1, §9.8", "200 M, 235 M, 234 M pairs", "Table 5 has 234.6 M", "T5.f"),
        ("§9.9", "nine evaluation datasets", "Table 6 lists eight; the official code has FiQA too", "T6.a"),
        ("Table 4", "sixteen samples", "fifteen are printed", "T4.b"),
        ("Table 4, §5", "supervised data of 1.5 M and of 1.8 M pairs", "two sizes", "T4.c"),
        (
            "§6",
            "improves all domains, incl. semantic similarity",
            "over what is not said; STS and pair classification are below nomic-embed-v1, whose backbone and "
            "pre-training data are the same",
            "T2.h",
        ),
        ("§1, Table 2", "a model of fewer than 250 M parameters", "two stages of 137 M, not shared: 274 M", "T2.j"),
        ("Tables 2 and 7", "retrieval of the final model", "53.3 and 54.0", "T2.k"),
        (
            "§9.12, Table 7",
            "largest improvements on ArguAna and TREC-COVID",
            "they are numbers 14 and 1 of 15 after the first phase, 1 and 3 after the second; FEVER is ahead of one of "
            "them in either",
            "T7.b",
        ),
        (
            "GTE §5.4, Table 10",
            "α = 0.5 can improve results on all tasks",
            "retrieval is best at 0.3: 44.6 against 44.2",
            "G10.a",
        ),
        (
            "GTE §5.2, Table 8",
            "performance saturates at 20 k steps",
            "59.0, then 57.8, 57.7 and 59.0 again",
            "G8.a",
        ),
        (
            "§4.1",
            "m obeys the triangle inequality, so that the clustering objective (3) bounds (2)",
            "as written it does not: a pair is at 0 from itself with query and document exchanged, so twice 0 leads "
            "back to it, where m is above 0; with each pair in both orders, as K-means gets them, a cluster bounds m "
            "of pairs that lie in it once in each order",
            "S4.d",
        ),
        (
            "§4.1",
            "L2 distances are equivalent to dot products of vectors of length 1",
            "one by one, not in sums: squared distances are, and these obey no triangle inequality",
            "S4.e",
        ),
        (
            "GTE §4.4, Tables 7 and 13",
            "all candidates are the challenging setting",
            "in Go 88.1 among all, 84.2 among a thousand",
            "G13.c",
        ),
        ("Figure 7", "its caption has the input on the y-axis", "its text has it on the x-axis"),
        ("Abstract", "no dataset-specific instructions", "§9.7: prefixes are hand-written for each dataset"),
        (
            "Abstract, §6",
            "no hard negative mining",
            "§6: the best model has one hard negative a query; no score is printed as of one without",
        ),
        (
            "§6, Table 1",
            "scores by dataset of its models are in the appendix",
            "there is Table 7 alone, of MTEB's 15 retrieval tasks, not of the shortened BEIR",
        ),
        ("§1", "better in all settings tested", "five cells of Table 7 fall"),
        (
            "§4.1",
            "objective (3) is a K-means problem",
            "K-means has squares of distances between concatenated vectors, (3) sums of two distances",
        ),
        ("§5", "cluster sizes 64, 256, 1024, 4096, …, 2097152, 4194304", "no series: powers of four lack 2097152"),
        (
            "§4.2",
            "the model does not include contextualized queries",
            "eq. 6 gives queries the context of documents; that no context has queries may be what is meant",
        ),
        ("Table 3", "neighbours of a single query, in its caption", "§9.2 draws a document"),
        ("Table 1, §5", "a batch of 16384", "the batch sizes of §5 end at 4096"),
        ("Table 6", "5,000 queries of Quora", "those of its development set; the test set has 10,000", "T6.d"),
        ("§9.9", "the top 1024 documents to each document", "to each query"),
    )
)
