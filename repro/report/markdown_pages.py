"""Generated blocks of Markdown pages, each between `<!-- name -->` and `<!-- name end -->`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from repro.data.mined.many import read_packages
from repro.report.artefacts import judgements, load_records
from repro.report.formats import as_markdown, as_markdown_table
from repro.report.gallery import SCALES, make_gallery
from repro.report.tables import format_effect, group_by_paper, make_claims_view, sort_judgements
from repro.report.view import View
from repro.spec import Experiment
from repro.spec.artefact import MAIN, PAPERS
from repro.spec.identity import get_setting_id
from repro.spec.registry import experiments, list_experiment_files, load_front_page
from repro.spec.scales import ORDER
from repro.statistics.judge import DESCRIPTIVE, OPEN, TENTATIVE, Judgement
from repro.storage.paths import CHECKOUT, SOURCES
from repro.text import ABSENT, count_noun

CLAIM_ID = re.compile(r"(?<![\w.#`\[])[A-Za-z]+\d*\.[a-z](?![\w.])")
"""The id of a claim within a text, which is no link yet."""


def make_artefact_table() -> str:
    """Return a Markdown table with a row per experiment: artefacts, title, scales with records, claims and file.

    Experiments of companion papers come last, below a row with the title of the paper.
    """
    lines: list[tuple[str, ...]] = []
    for paper, title in PAPERS.items():
        rows = [_format_artefact_line(experiment) for experiment in experiments() if experiment.paper == paper]
        heading = [(f"**{title}**", "", "", "", "")] if rows and paper != MAIN else []
        lines += heading + rows
    return as_markdown_table(("artefacts", "what is shown", "replicated at", "claims", "declared in"), lines)


def make_package_table() -> str:
    """Return a Markdown table of the packages of `packages-many`: split, field, size and licence."""
    columns = ("package", "version", "split", "field", "KB", "rows", "domains", "licence")
    packages = sorted(read_packages(), key=lambda each: (each.split, each.field, each.name))
    rows = [
        (each.name, each.version, each.split, each.field, *map(str, sizes), each.licence)
        for each in packages
        for sizes in [(each.num_bytes >> 10, each.num_rows, each.num_domains)]
    ]
    return as_markdown_table(columns, rows)


def _format_artefact_line(experiment: Experiment) -> tuple[str, ...]:
    prefix = f"e{experiment.number:02d}_"
    (path,) = (CHECKOUT / file for file in list_experiment_files() if file.name.startswith(prefix))
    names = ", ".join(f"`{name}`" for name in experiment.artefact_names)
    claims = ", ".join(claim.id for claim in experiment.claims) or ABSENT
    file = f"[{path.stem[:3]}](../{path.relative_to(CHECKOUT)})"
    return names, experiment.title, describe_status(experiment), claims, file


def describe_status(experiment: Experiment) -> str:
    """Return the scales with published records and the largest number of seeds, or that there are none."""
    parts = []
    for scale in ORDER:
        runs = [run for run in experiment.runs(scale) if run.scale == scale]
        records = load_records(runs, "published")
        if not records:
            continue
        num_settings = len({get_setting_id(run) for run in runs})
        num_seeds = Counter(get_setting_id(record.run) for record in records)
        share = "" if len(num_seeds) == num_settings else f", {len(num_seeds)} of {num_settings} settings"
        seeds = max(num_seeds.values())
        parts.append(f"{scale} ({count_noun(seeds, 'seed')}{share})")
    return ", ".join(parts) or "declared, not run"


def make_headlines_view(judged: Mapping[str, Sequence[Judgement]], page: str = "") -> View:
    """Return the main results: a row per sentence with the paper's value, and a column per scale of `judged`.

    Each scale shows the first claim that has an effect there. On a Markdown `page`, it links to the claim.
    """
    by_scale = [{judgement.claim.id: judgement for judgement in ledger} for ledger in judged.values()]
    rows = []
    for headline in load_front_page()["headline"]:
        effects = [_format_first_effect(headline["claims"], by_id, page) for by_id in by_scale]
        rows.append((headline["statement"], headline["paper"] or ABSENT, *effects))
    header = ("", "paper", *judged)
    title = "Differences in points of NDCG@10 (95 % interval)"
    return View(title, header, tuple(rows), align="l" * len(header))


def _format_first_effect(names: Sequence[str], by_id: Mapping[str, Judgement], page: str) -> str:
    """Return the effect and interval of the first claim that has one, or a dash. "T1.d/2" is a claim's second comparison.

    Open, tentative and descriptive effects have that word.
    """
    for id, _, number in (name.partition("/") for name in names):
        judged = by_id.get(id)
        if judged and judged.comparisons:
            text = format_effect(judged.comparisons[int(number or 1) - 1], judged.unit)
            if page:
                effect, bracket, interval = text.partition(" (")
                text = f"[{effect}]({page}#{id}){bracket}{interval}"
            text += f" {judged.unit.name}" if judged.unit.name != "points" else ""
            return f"{text} {judged.word}" if judged.word in (OPEN, TENTATIVE, DESCRIPTIVE) else text
    return ABSENT


LEDGERS = {MAIN: "docs/CLAIMS.md", "GTE": "docs/GTE.md", "MRL": "docs/MRL.md"}
"""The page with the claims of each paper. That of a companion paper also has its tables and pictures."""
DESK = SCALES[0]
HEADLINE_SCALES = SCALES[::-1]
"""Scales of the main results. Those with a pretrained start come first, desk last."""
RESULTS = "docs/RESULTS.md"
SUMMARY = SOURCES / "experiments" / "summary.md"
"""The sentences with which the front page and the report open: a paragraph, then a list."""
SOURCE_BLOCKS = {
    ("summary", "README.md"): lambda: SUMMARY.read_text("utf-8").replace("(../", "("),
    ("summary", RESULTS): lambda: SUMMARY.read_text("utf-8").replace(f"(../{RESULTS}#", "(#"),
    ("artefacts", "docs/ARTEFACTS.md"): lambda: link_claims(make_artefact_table()),
    ("packages", "docs/PACKAGES.md"): make_package_table,
}
"""Blocks that depend on source code, and on the runs that have records."""


def read_summary() -> tuple[str, list[str]]:
    """Return the introduction and the sentences of the summary, each on one line."""
    introduction, *sentences = re.split(r"\n+- ", SUMMARY.read_text("utf-8"))
    return " ".join(introduction.split()), [" ".join(sentence.split()) for sentence in sentences]


def link_claims(text: str) -> str:
    """Return Markdown in which the ids of claims are links to their anchors."""
    pages = {claim.id: LEDGERS[experiment.paper] for experiment in experiments() for claim in experiment.claims}

    def link(match: re.Match[str]) -> str:
        id = match[0]
        return f"[{id}]({Path(pages[id]).name}#{id})" if id in pages else id

    return CLAIM_ID.sub(link, text)


def add_anchors(ledgers: Sequence[str]) -> list[str]:
    """Return ledgers in Markdown with one anchor per claim: at its first row, or, without a row, at its first mention."""
    missing = {claim.id for experiment in experiments() for claim in experiment.claims}

    def add_anchor(match: re.Match[str]) -> str:
        if match[0] not in missing:
            return match[0]
        missing.remove(match[0])
        return f'<a id="{match[0]}"></a>{match[0]}'

    text = re.sub(r"(?m)(?<=^\| )[^| ]+(?= \|)", add_anchor, "\0".join(ledgers))
    lines = [line if line.startswith("|") else CLAIM_ID.sub(add_anchor, line) for line in text.split("\n")]
    return "\n".join(lines).split("\0")


def regenerate_pages(judged: Sequence[Judgement]) -> dict[Path, str]:
    """Return the text of each page, regenerated from source code and published records, by path.

    `judged` are the claims at desk. Those at larger scales are judged here.

    Raises ValueError if there are no pages (in an installed copy), or if a page does not have each marker once.
    """
    if not (CHECKOUT / RESULTS).is_file():
        raise ValueError(f"{CHECKOUT} has no {RESULTS}: pages are regenerated in a checkout, not in an installed copy")
    # The pages are committed, so they do not show the reader's own records.
    judged = [replace(judgement, yours=()) for judgement in judged]
    by_paper = group_by_paper(judged)
    title = f"Claims at scale `{DESK}`, judged from the published records"
    blocks = {
        ("claims", page): as_markdown(make_claims_view(by_paper.get(paper, []), title))
        for paper, page in LEDGERS.items()
    }
    by_scale = {scale: judged if scale == DESK else judge_results(scale) for scale in HEADLINE_SCALES}
    # Each scale above desk has a block.
    for larger in HEADLINE_SCALES[:-1]:
        view = make_claims_view(by_scale[larger], f"Claims judged from records at `{larger}`")
        blocks[f"claims_{larger}", LEDGERS[MAIN]] = as_markdown(view)
    blocks = dict(zip(blocks, add_anchors(list(blocks.values())), strict=True))
    for page, ledger in ((RESULTS, Path(LEDGERS[MAIN]).name), ("README.md", LEDGERS[MAIN])):
        blocks["headlines", page] = as_markdown(make_headlines_view(by_scale, ledger))
    blocks |= {block_place: make_block() for block_place, make_block in SOURCE_BLOCKS.items()}
    for paper, page in {**LEDGERS, MAIN: RESULTS}.items():
        blocks["gallery", page] = link_claims(make_gallery(paper))
    pages: dict[Path, str] = {}
    for (name, page), block in blocks.items():
        path = CHECKOUT / page
        pages[path] = replace_block(path, pages.get(path) or path.read_text("utf-8"), name, block)
    return pages


def judge_results(scale: str) -> list[Judgement]:
    """Judge the claims with published records at a scale. Yours are left out.

    Experiments that use the runs of another scale are skipped, because they are judged at that scale.
    """
    judged: list[Judgement] = []
    for experiment in experiments():
        if scale in {run.scale for run in experiment.runs(scale)}:
            judged += [replace(judgement, yours=()) for judgement in judgements(experiment, scale)]
    return sort_judgements(judgement for judgement in judged if judgement.effect is not None)


def replace_block(path: Path, text: str, name: str, block: str) -> str:
    """Replace the block between the markers of a name. Raises ValueError unless each marker occurs once."""
    start, end = f"<!-- {name} -->", f"<!-- {name} end -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"{path} must have {start!r} and {end!r} once each; put them around the generated block")
    before, rest = text.split(start)
    return f"{before}{start}\n\n{block}\n{end}{rest.split(end)[1]}"
