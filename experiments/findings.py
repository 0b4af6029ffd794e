"""The main result of each experiment in a few sentences, for the results page.

Numbers live in the tables and claims.
"""

FINDINGS: dict[int, str] = {
    1: "From MiniLM (`mini`), batches of one domain beat plain ones, clusters with the filter lose, and the architecture "
    "costs 0.4 to 0.5 points on every kind of batch. At `desk`, contextual batches beat plain ones, both ideas together beat "
    "each alone, and the architecture alone gains little. BM25 beats every trained row of `desk`.",
    2: "On a planted corpus the architecture does read its context: in-corpus context scores far above out-of-corpus "
    "context, and the biencoder stays behind.",
    3: "On validation domains, batches of one domain without the filter are best. Random heads cost five points. A second "
    "phase needs a low learning rate.",
    4: "Without the filter, larger clusters are better, as in the paper. With it, the smallest and the largest are best. The "
    "filter gains half a point at the smallest clusters and costs a point at the largest, so over all settings it "
    "costs 0.4. At equal numbers of steps, larger batches are better. At equal numbers of pairs, batches of 256 and 512 are. "
    "The contextual model beats the biencoder by half a point, and so does the model trained without documents.",
    5: "On 1024 pairs, two epochs score highest on both sets. After eight, the pairs are memorised and the score is lower.",
    6: "At the low learning rate chosen on validation domains, hard negatives and batch difficulty hardly change the "
    "score of a second phase.",
    7: "For the smallest clusters, a greedy tour does not score higher than a random order.",
    8: "A deeper first stage changes training accuracy by less than a point.",
    9: "With a fixed number of context vectors, many documents with one vector each and few documents with several "
    "score alike.",
    10: "Batches get easier as clusters and batches grow, and harder as more pairs are clustered.",
    11: "The mined text has three training sources and five evaluation families. Two of the families are unlike the "
    "training text.",
    12: "Under the surrogate, the neighbours of a document are nearly three times as likely to be possible positives as "
    "other documents of its domain.",
    13: "Pairs of one cluster are much more alike than pairs of one source. The paper prints fifteen of sixteen "
    "samples.",
    14: "Over 45 collections, trained models fall further behind BM25 where words differ more from the training text "
    "(r from −0.2 to −0.3). Off-the-shelf MiniLM does not (r = +0.56). Collections of one family are alike, so the "
    "intervals are too narrow and no claim is judged.",
    15: "The picture shows the two stages of the contextual model with their actual sizes.",
    16: "At `desk`, another context moves the vector of a document by a few percent of the distance to the nearest other "
    "document. At `lab` (not shown) it is an eighth.",
    17: "More context documents help slightly. The draw of the documents hardly matters.",
    18: "Context documents of the searched domain and of other domains give about the same score. At `lab` (not "
    "shown) the searched domain is ahead by a fifth of a point.",
    19: "Over six task categories, documents of the task as context beat random training text by less than a tenth of a "
    "point.",
    20: "The contextual system is ahead of the plain one after both phases. The second phase changes little.",
    21: "The exhibit shows one training batch: its pairs, its hardest negatives and the documents that the filter masks.",
    22: "Contextual batches of 128 are six points better than plain batches of 2048 that see as many pairs. They are one "
    "point worse than plain batches of 2048 with as many steps, which see sixteen times as many pairs.",
    23: "False negatives become more common as data grows. A weak surrogate makes the filter mask too much.",
    24: "IDF from sixteen documents of the searched corpus gives higher scores than IDF from the whole training text. "
    "IDF from the whole of another corpus scores six to seven points lower than IDF from the whole searched corpus.",
    25: "At `desk`, the paper's architecture gains a tenth of a point from its corpus after 960 steps. If it is given word "
    "frequencies directly, it gains about one point. At `lab` (not shown), the paper's architecture gains a tenth "
    "of a point after 960 steps and 0.3 points after 2400.",
    31: "From 16 dimensions on, prefixes of one nested model match models trained at each width. Truncated vectors of a "
    "plain model fall far behind.",
    32: "A shortlist by 16 dimensions, reranked by whole vectors, loses almost nothing and needs half the "
    "multiplications. In wall-clock time it is slower, because our collections have only hundreds of documents.",
    33: "The improved contrastive loss scores lower here. It gains on services and loses on packages and medical text.",
    34: "How often each of the nine sources is drawn hardly changes the score.",
    35: "With word frequencies, the gain from in-corpus context survives down to 16 dimensions.",
    36: "Pre-training matters most, and it is not finished after two fifths of the steps.",
    37: "A few sources are better than one. More than a few add nothing at 120 steps. In fine-tuning, "
    "the number of sources does not matter.",
    38: "At equal steps, larger batches score higher with each doubling from 16 to 128.",
    39: "Larger models score higher and reach a lower training loss with each doubling of their width. Fine-tuning "
    "adds half a point to the largest and nothing to the others.",
    40: "BM25 finds more within the first hundred documents than the dense model after pre-training.",
    41: "Models trained on documentation rank the function that a docstring describes lower than BM25 and untrained word "
    "vectors do.",
    42: "Models trained on documentation cannot tell the polarity of film reviews. MiniLM can, to some degree.",
    43: "A cascade over prefixes is as accurate as the whole vector, but needs most of its dimensions.",
    44: "No design that keeps the architecture makes it gain half a point from in-corpus over out-of-corpus context.",
    45: "Contextual batches lose on views of a text, because short crops match many documents of their cluster.",
    46: "Tentatively at `desk`, and at `lab` (not shown), the contextual model beats the biencoder on batches of one domain. "
    "At `desk`, almost none of this gain comes from reading the searched corpus, at `lab` 0.4 of 1.3 points.",
    47: "A contextual model that never sees a document gains as much over the biencoder as one that reads its corpus.",
    48: "Whitening by the mean and covariance of the searched corpus, without training, gains more than the contextual "
    "architecture gains from its context. At `desk` it also gains 1.8 points more than a correction of hubness, at `mini` "
    "(not shown) 0.4 points less.",
    49: "The table has all settings tried for `mini`. Fine-tuned models score 74 to 77 on collections like the training "
    "text and 69 to 70 on text of other vendors. BM25 and off-the-shelf MiniLM score 61 to 62 on both.",
    50: "At `desk` and `mini`, it does not matter which documents of the corpus serve as context. Central, typical and "
    "diverse ones, and even those nearest to the test queries, score like random ones.",
    51: "Soft prompts and a small sequence dropout hardly change the score. With sequence dropout 0.5, a model scores the "
    "same with and without context, and its seeds vary more.",
    52: "Linear heads on nested prefixes and on models trained at each width differ by no more than chance. Nearest "
    "neighbours are a point less accurate on the nested model, whereas they are more accurate in the paper. One head for "
    "all widths costs half a point to two points. A cascade saves an eighth of the dimensions.",
    53: "Each doubling of the width finds more relevant documents. At eight dimensions, most wrong first documents belong "
    "to another family than the query. For hardly any query is only the narrowest prefix right.",
    54: "At `desk` the depth of either stage hardly matters: four times the layers change the score by half a point at "
    "most. The contextual model beats a biencoder of the same training cost by three quarters of a point, and by 0.6 "
    "points if it is trained without documents.",
    55: "With one seed on validation collections, every way reads the corpus a little: in-corpus context scores 0.2 to 0.8 "
    "points above random training text. Word frequencies score highest, 0.3 points above the biencoder and 0.6 above the "
    "model trained without documents. Sixty-four documents instead of 16 raise the gain but not the score. Whitening "
    "lowers the score of a biencoder after this training. `context_curve` repeats word frequencies with new seeds.",
    56: "If training starts from MiniLM, the filter costs five points on validation collections if it uses word vectors, "
    "and six if it uses MiniLM. A filter by MiniLM masks by definition what the initial model ranks above the right document. "
    "On the test suite the filter by word vectors costs more than four points. Without it, clusters gain two points over "
    "batches of one source, about as much as the paper's filtered batches.",
    57: "Without the filter, contextual batches gain two points over plain ones. The architecture costs about half "
    "a point on either kind of batch. On contextual batches, the context-blind model scores 0.2 points lower than the one with "
    "context, which may be chance.",
    58: "After eight times the steps, context documents of the searched corpus are 0.3 points better than random training "
    "text. Nearly all of this lies in software packages, where they are 1.8 points better. On average, the contextual "
    "model still does not beat the biencoder. With word frequencies in its pooling (five seeds), context documents "
    "of the searched corpus are 0.5 points better than random training text, and the model is about as good as the "
    "biencoder.",
    59: "In the first of three seeds, the filter costs 3.4 to 4.5 points at every size. Without it, smaller clusters are "
    "better. The smaller batch is better for clusters of up to 1024 pairs.",
    60: "Batches of 32 score three to four points lower than batches of 128.",
    61: "The larger the model, the lower its best learning rate, as in the paper's table. After pre-training, fine-tuning "
    "needs a lower rate than pre-training: at the rate of pre-training it loses more than a point, at four times that rate 14 points. "
    "At every rate, fine-tuning alone is at least seven points behind pre-training with fine-tuning at the lowest rate.",
}
