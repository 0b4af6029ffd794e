"""Split of domains into training, validation and test. Groups of related domains and whole sources are held out."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import Literal, NamedTuple

Split = Literal["train", "validation", "test", "unused"]

TRAINING_SOURCES = ("services", "modules", "packages")
ADDED_SOURCES = ("commands", "payments", "health", "homes", "builds", "containers")
"""Additional sources of the corpus `wide`, which is for training only."""


class Group(NamedTuple):
    """Domains about the same subject, which are held out together. `domains` are shell patterns."""

    split: Split
    source: str
    domains: tuple[str, ...]


class Dataset(NamedTuple):
    """One evaluation collection: all rows of `source` whose domain matches one of the patterns `domains`."""

    name: str
    family: str
    source: str
    domains: tuple[str, ...]


HELD_OUT = (
    # Services: databases, search, video, internet of things, firewalls, mail, games and dialogue.
    Group(
        "test", "services", ("rds*", "docdb*", "neptune*", "dynamodb*", "dax", "dsql", "odb", "dms", "sdb", "simpledb*")
    ),
    Group("test", "services", ("elasticache", "memorydb", "redshift*", "keyspaces*", "timestream*")),
    Group("test", "services", ("es", "opensearch*", "osis", "cloudsearch*", "kendra*")),
    Group("test", "services", ("media[clpst]*", "ivs*", "elementalinference", "kinesisvideo", "kinesis-video*")),
    Group("test", "services", ("iot*", "greengrass*")),
    Group("test", "services", ("waf*", "network-firewall", "network-security-manager", "shield", "fms")),
    Group("test", "services", ("ses*", "mailmanager", "workmail*", "pinpoint*", "sms-voice", "*messaging")),
    Group("test", "services", ("gamelift*", "lex*")),
    # Services for validation: contact centres, desktops, data catalogues.
    Group(
        "validation", "services", ("connect*", "customer-profiles", "wisdom", "qconnect", "voice-id", "appintegrations")
    ),
    Group("validation", "services", ("workspaces*", "appstream", "workdocs")),
    Group("validation", "services", ("glue", "databrew", "lakeformation", "athena", "datazone")),
    # Modules: storage of one vendor, virtual machines, private clouds, load balancers, monitoring.
    Group(
        "test", "modules", ("netapp*", "*vmware*", "openstack.cloud", "ovirt.ovirt", "kubevirt.core", "f5networks.*")
    ),
    Group("test", "modules", ("community.zabbix",)),
    Group("validation", "modules", ("purestorage.*", "theforeman.foreman", "dellemc.*")),
    # These collections quote the documentation of held-out services verbatim.
    Group("unused", "modules", ("amazon.aws", "community.aws", "google.cloud")),
    # Packages: whole packages, so that a sub-package has no sibling in training.
    Group("test", "packages", ("statsmodels*", "networkx*", "gensim*", "polars*")),
    Group("validation", "packages", ("matplotlib*", "seaborn*", "huggingface_hub*", "datasets*")),
    # Commands for the products of vendors whose modules are held out.
    Group("unused", "commands", ("commands.netappfiles", "commands.vmware")),
)


def _one_per_domain(source: str, *domains: str) -> tuple[Dataset, ...]:
    """Return a collection for each domain, with its name. The family is that of the source."""
    return tuple(Dataset(domain, source, source, (domain,)) for domain in domains)


TEST_DATASETS = (
    *_one_per_domain("services", "rds", "dynamodb", "redshift", "elasticache", "opensearch", "kendra", "mediaconvert"),
    *_one_per_domain("services", "medialive", "iot", "iotsitewise", "wafv2", "sesv2", "gamelift", "lexv2-models"),
    Dataset("statsmodels-tsa", "packages", "packages", ("statsmodels.tsa",)),
    Dataset("statsmodels-stats", "packages", "packages", ("statsmodels.stats",)),
    Dataset("statsmodels-models", "packages", "packages", ("statsmodels.[bdgmr]*",)),
    Dataset("networkx-algorithms", "packages", "packages", ("networkx.algorithms",)),
    Dataset("networkx-others", "packages", "packages", ("networkx", "networkx.[cgru]*")),
    Dataset("gensim", "packages", "packages", ("gensim*",)),
    Dataset("polars-expr", "packages", "packages", ("polars.expr",)),
    Dataset("polars-frames", "packages", "packages", ("polars.dataframe", "polars.lazyframe", "polars.io")),
    Dataset("netapp", "collections", "modules", ("netapp.ontap",)),
    Dataset("santricity", "collections", "modules", ("netapp_eseries.santricity",)),
    Dataset("vmware", "collections", "modules", ("community.vmware",)),
    Dataset("openstack", "collections", "modules", ("openstack.cloud",)),
    Dataset("f5", "collections", "modules", ("f5networks.f5_modules",)),
    Dataset("zabbix", "collections", "modules", ("community.zabbix",)),
    *_one_per_domain("cloud", "compute", "bigquery", "youtube", "androidpublisher"),
    *_one_per_domain("cloud", "sheets", "healthcare", "classroom", "dlp"),
    Dataset("hpo-nervous-system", "medical", "phenotypes", ("abnormality of the nervous system",)),
    Dataset("hpo-heart", "medical", "phenotypes", ("abnormality of the cardiovascular system",)),
    Dataset("hpo-eye", "medical", "phenotypes", ("abnormality of the eye",)),
    Dataset("hpo-metabolism", "medical", "phenotypes", ("abnormality of metabolism/homeostasis",)),
    Dataset("hpo-muscles-and-bones", "medical", "phenotypes", ("abnormality of the musculoskeletal system",)),
    Dataset("icd-mental", "medical", "diagnoses", ("mental, behavioral and neurodevelopmental disorders",)),
    Dataset("icd-infections", "medical", "diagnoses", ("certain infectious and parasitic diseases",)),
    Dataset("icd-malformations", "medical", "diagnoses", ("congenital malformations, *",)),
    Dataset("icd-circulation", "medical", "diagnoses", ("diseases of the circulatory system",)),
)

VALIDATION_DATASETS = (
    *_one_per_domain("services", "connect", "customer-profiles", "workspaces", "glue", "athena", "datazone"),
    Dataset("matplotlib", "packages", "packages", ("matplotlib", "matplotlib.[abcf]*")),
    Dataset("matplotlib-artists", "packages", "packages", ("matplotlib.[lptw]*",)),
    Dataset("huggingface-hub", "packages", "packages", ("huggingface_hub*",)),
    Dataset("datasets", "packages", "packages", ("datasets*",)),
    Dataset("purestorage", "collections", "modules", ("purestorage.*",)),
    Dataset("foreman", "collections", "modules", ("theforeman.foreman",)),
    Dataset("openmanage", "collections", "modules", ("dellemc.openmanage",)),
)

VALIDATION_OTHERS = (
    Dataset("stripe-accounts", "payments", "payments", ("payments.account",)),
    Dataset("stripe-invoices", "payments", "payments", ("payments.invoice",)),
    Dataset("fhir-records", "health", "health", ("health.[a-c]*",)),
    Dataset("fhir-others", "health", "health", ("health.others",)),
    Dataset("home-config", "homes", "homes", ("homes.config",)),
    Dataset("home-services", "homes", "homes", ("homes.services",)),
    Dataset("cmake-variables", "builds", "builds", ("builds.variable",)),
    Dataset("cmake-properties", "builds", "builds", ("builds.prop_tgt",)),
    Dataset("kubernetes", "containers", "containers", ("containers.v1",)),
)
"""Validation collections unlike the training text of `desk`: other vendors and other kinds of text."""


@cache
def get_split(source: str, domain: str) -> Split:
    """Return the split of a domain. Sources without training rows are held out completely."""
    # The first matching group decides.
    for group in HELD_OUT:
        if group.source == source and matches(domain, group.domains):
            return group.split
    return "train" if source in (*TRAINING_SOURCES, *ADDED_SOURCES) else "test"


def matches(domain: str, patterns: tuple[str, ...]) -> bool:
    """Return whether `domain` matches one of the shell patterns."""
    return any(fnmatchcase(domain, pattern) for pattern in patterns)
