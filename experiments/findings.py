"""The result of each experiment in one or two sentences, for the results page.

Numbers live in the tables and claims.
"""

FINDINGS: dict[int, str] = {
    1: "At `desk`, contextual batches beat plain ones, and both ideas together beat each alone. The architecture alone "
    "gains little. Batches of one domain with the architecture score highest of the trained rows. BM25 beats every "
    "row that starts from word vectors.",
    2: "On a planted corpus the architecture does read its context: its own corpus beats an unrelated one clearly, "
    "and the biencoder stays behind.",
    3: "Batches of one domain without the filter did best on validation domains. Large clusters across a whole source "
    "did worst, because they collect near copies of one document.",
    4: "The filter helps, most for small clusters. Batches of 32 are too small. From 128 on, larger batches change "
    "little at equal numbers of pairs.",
    5: "On 1024 pairs, two epochs are best on both sets. After eight, the pairs are memorised and the score is lower.",
    6: "At the low learning rate that validation asks for, hard negatives and the difficulty of batches hardly change "
    "the score of a second phase.",
    7: "A greedy tour over clusters is not better than a random order at the smallest clusters.",
    8: "A deeper first stage changes training accuracy by less than a point.",
    9: "With a fixed number of context vectors, many documents with one vector each and few documents with several "
    "score alike.",
    10: "Batches get easier as clusters and batches grow, and harder as more pairs are clustered.",
    11: "The mined text has three training sources and five evaluation families. Two of the families are unlike the "
    "training text.",
    12: "Neighbours of a document under the surrogate are several times as likely to be a right answer as other "
    "documents of its domain.",
    13: "Pairs of one cluster are much more alike than pairs of one domain. The fifteen printed samples of the paper "
    "are compared with ours.",
    14: "The further a family's words are from the training text, the further models tend to fall behind BM25. Five "
    "families are too few to separate this from chance.",
    15: "The two stages of the contextual model with its real sizes.",
    16: "A document's vector moves with its context by a few percent of the distance to the nearest other document.",
    17: "More context documents help slightly. Which documents are drawn hardly matters.",
    18: "Queries score about the same under documents of their own domain and of others. At `lab` their own is ahead "
    "by a fifth of a point.",
    19: "Over six task categories, documents of the task as context are not clearly better than random training text.",
    20: "After either phase the contextual system is ahead of the plain one. A second phase changes little.",
    21: "One training batch: its pairs, its hardest negatives and what the filter masks.",
    23: "False negatives become more common as data grows. A weak surrogate makes the filter mask too much.",
    24: "Sixteen documents of the searched corpus weigh words better than the whole training text. Statistics of "
    "another corpus are worth nothing.",
    25: "The paper's architecture begins to read its corpus after about 2400 steps, and gains a few tenths of a point. "
    "If it is given word frequencies directly, it gains about one point.",
    31: "Prefixes of one nested model match models trained at each width from 16 dimensions on. Truncated vectors of a "
    "plain model fall far behind.",
    32: "A shortlist by 16 dimensions, reranked by whole vectors, loses almost nothing and needs half the "
    "multiplications. By the clock it is slower on collections of hundreds.",
    33: "The improved contrastive loss scores lower here. It gains on services and loses on packages and medical text.",
    34: "How often each source is drawn hardly changes the mean over nine sources.",
    35: "What the searched corpus is worth survives down to 16 dimensions.",
    36: "Pre-training matters most, and it is not finished after two fifths of the steps.",
    37: "A few sources are better than one. More than a few add nothing at 120 steps.",
    38: "At equal steps, larger batches score higher with each doubling from 16 to 128.",
    39: "Larger models score higher and reach a lower training loss with each doubling of their width.",
    40: "BM25 finds more within the first hundred documents than the dense model after pre-training.",
    41: "Models trained on documentation find the function that a docstring describes far less often than MiniLM does.",
    42: "Models trained on documentation cannot tell the polarity of film reviews. MiniLM can, to some degree.",
    43: "A cascade over prefixes is as often right as the whole vector, but needs most of its dimensions.",
    44: "No design that leaves the architecture unchanged makes it read its corpus by half a point.",
    45: "Contextual batches lose on views of a text, because short crops match many documents of their cluster.",
    46: "On batches of one domain the contextual model beats the biencoder. Little of this comes from the right "
    "corpus.",
    47: "A contextual model that never sees a document gains most of what the architecture gains over the biencoder.",
    48: "Whitening by the mean and covariance of the searched corpus, without training, is worth more than the "
    "contextual architecture takes from its context.",
    49: "Settings tried for `mini`, losers included. Fine-tuned models score 75 to 77 on collections like the training "
    "text and 70 on text of other vendors. BM25 and MiniLM as it is score 61 to 62 on both.",
    50: "It does not matter which documents of the corpus serve as context. Central, typical and diverse ones, and even "
    "those nearest to the test queries, score like random ones.",
    51: "Soft prompts and a small sequence dropout hardly change the score. With dropout 0.5 a model scores without context "
    "what it scores with it, and its seeds vary more.",
    52: "Linear heads on nested prefixes are as accurate as on models trained at each width, within chance. Nearest "
    "neighbours are a point less accurate on the nested model, while the paper has them ahead. One head for all widths "
    "costs one to two points. A cascade saves an eighth of the dimensions.",
    53: "Wider prefixes find more relevant documents at every doubling. At eight dimensions, most errors leave the family "
    "of the query. Hardly any query is answered by the narrowest prefix alone.",
    56: "From MiniLM, the filter costs five points on validation collections, whether word vectors or MiniLM decide. If "
    "MiniLM decides, it masks by definition what the model at its start ranks above the right document. Without the "
    "filter, clusters score like batches of one domain, three points above batches of one source.",
}
