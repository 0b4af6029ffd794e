"""The sources of `wide`: the rows mined from a sample of each, and their pins."""

import json
from zipfile import ZipFile

import pytest

from repro.data.mined import sources, wheels
from repro.data.mined.manifests import WHEELS, WIDE_FOLDER, read_manifest
from repro.data.mined.mining import ADDED, MINERS
from repro.data.mined.splits import ADDED_SOURCES, get_split
from repro.data.mined.wheels import PINS, Pin, get_wheels_folder
from repro.data.pairs import Row
from repro.storage.digests import hash_file

CONTAINER = '''
class V1PodSpec(BaseModel):
    """PodSpec describes a pod.

    Attributes:
      openapi_types (dict): no one asks
    """
    host_ip: Optional[str] = Field(default=None, description="The `address` of the host.")
    affinity: Optional[V1Affinity] = None
'''
RESOURCE = '''
class Patient(Base):
    """Disclaimer: the same everywhere.

    A person who receives care.
    """
    active: bool | None = Field(
        title="Whether this record is in use",
        description="Many systems mark records " "that are no longer used.",
    )
    active__ext: Any = Field(title="Extension field for ``active``.")
    address: Any = Field(title="An address for the individual", description=None)
'''
PAYMENT = '''
class ChargeCreateParams(RequestOptions):
    amount: NotRequired[int]
    """
    Amount in the [smallest unit](https://example.org/units) of `currency`.
    """
    fee: NotRequired[int]
    currency: NotRequired[str]
    """
    Three-letter code, <b>in lower case</b>.
    """
    class Owner(TypedDict):
        first_name: str
        """
        The given name of the owner.
        """
'''
HOME = {
    "title": "Hue",
    "config": {
        "step": {
            "init": {
                "title": "RunFilter a bridge",
                "data": {"host": "Host"},
                "data_description": {"host": "Its [IP](u)."},
            }
        },
        "abort": {"all_done": "All bridges are **already** set up"},
    },
    "services": {
        "dim": {"name": "Dim", "description": "Dims.", "fields": {"by": {"name": "By", "description": "Much."}}}
    },
    "exceptions": {"no_light": {"message": "There is no such light"}},
}
PAGE = """DESTINATION_FILE
----------------

.. versionadded:: 3.1

Names the :variable:`output file <OUT>` of a rule. It is
relative to ``here``.

.. code-block:: cmake

  set(A B)

Details
^^^^^^^

Only one file.

See Also
^^^^^^^^

* :command:`install`
"""
HELP = '''
helps["disk create"] = """
type: command
short-summary: Create a managed disk.
examples:
  - name: Create an empty disk.
    text: >
        az disk create -n MyDisk
"""
helps["disk"] = """
short-summary: Manage disks.
long-summary: A disk is storage that outlives its machine.
"""
helps["broken"] = """
short-summary: "never closed
"""
'''
COMMAND = '''
@register_command("vm stop", is_preview=True)
class Stop(AAZCommand):
    """Stop a machine.

    It is still paid for.

    :example: Stop one.
        az vm stop -n MyVm
    """

    def _build(cls):
        _args_schema.vm_name = AAZStrArg(options=["-n"], help="The name of the machine.")
        _args_schema.other = AAZStrArg(options=["-o"])
'''

AZURE = "azure/cli/command_modules/vm"
TRANSLATIONS = "homeassistant/components/hue/translations"
CMAKE = "cmake/data/share/cmake-4.4/Help"
FILES = {
    "containers": {"kubernetes/client/models/v1_pod_spec.py": CONTAINER, "kubernetes/client/api/x.py": CONTAINER},
    "health": {"fhir/resources/patient.py": RESOURCE, "fhir/resources/R4B/patient.py": RESOURCE},
    "payments": {"stripe/params/_charge_create_params.py": PAYMENT},
    "homes": {f"{TRANSLATIONS}/{language}.json": json.dumps(HOME) for language in ("en", "de")},
    "builds": {f"{CMAKE}/prop_tgt/DESTINATION_FILE.rst": PAGE, f"{CMAKE}/release/4.0.rst": PAGE},
    "commands": {f"{AZURE}/{name}.py": HELP for name in ("_help", "custom")}
    | {f"{AZURE}/aaz/{version}/vm/_stop.py": COMMAND for version in ("2019", "latest")},
}
"""Files of the wheel of each source. Most texts are also in a file that must not be read."""
ROWS = """
containers/V1PodSpec. | pod spec object | PodSpec describes a pod. | containers.v1
containers/V1PodSpec.host_ip | pod spec host ip | The address of the host. | containers.v1
health/Patient. | patient resource | A person who receives care. | health.patient
health/Patient.active | Whether this record is in use | Many systems mark records that are no longer used. | health.patient
health/Patient.address | patient address | An address for the individual | health.patient
payments/ChargeCreateParams.amount | charge amount | Amount in the smallest unit of currency. | payments.charge
payments/ChargeCreateParams.currency | charge currency | Three-letter code, in lower case. | payments.charge
payments/ChargeCreateParams.Owner.first_name | owner first name | The given name of the owner. | payments.charge
homes/hue/config//abort/all_done | hue all done | All bridges are already set up | homes.config
homes/hue/config/step/init/host | hue RunFilter a bridge Host | Its IP. | homes.config
homes/hue/services/dim | hue Dim | Dims. | homes.services
homes/hue/services/dim/fields/by | hue By | Much. | homes.services
homes/hue/exceptions/no_light | hue no light | There is no such light | homes.exceptions
builds/prop_tgt/DESTINATION_FILE/0 | Names the output file of a rule | It is relative to here. | builds.prop_tgt
builds/prop_tgt/DESTINATION_FILE/1 | destination file target property Details | Only one file.. | builds.prop_tgt
commands/disk create | disk create | Create a managed disk. | commands.disk
commands/disk create#0 | Create an empty disk | az disk create -n MyDisk | commands.disk
commands/disk | Manage disks | A disk is storage that outlives its machine. | commands.disk
commands/broken | broken |  | commands.broken
commands/vm stop | Stop a machine | It is still paid for. | commands.vm
commands/vm stop#0 | Stop one | az vm stop -n MyVm | commands.vm
commands/vm stop vm_name | vm stop vm name | The name of the machine. | commands.vm
"""
"""Id, query, document and domain of the rows that are mined from these files."""


@pytest.mark.parametrize("source", ADDED)
def test_files_become_rows(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MIN_ROWS_PER_DOMAIN", 1)
    get_wheels_folder().mkdir(parents=True)
    (wheel,) = WHEELS[source]
    path = get_wheels_folder() / f"{wheel}.whl"
    with ZipFile(path, "w") as archive:
        for name, text in FILES[source].items():
            archive.writestr(name, text)
    monkeypatch.setitem(wheels.PINS, wheel, Pin("0", path.name, hash_file(path), "MIT"))
    rows = [f"{row.id} | {row.query} | {row.document} | {row.domain}" for row in ADDED[source]()]
    assert rows == [line for line in ROWS.splitlines() if line.startswith(f"{source}/")]


def test_small_domains_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MIN_ROWS_PER_DOMAIN", 2)
    rows = [Row(str(n), "q", "d", domain, "homes") for n, domain in enumerate(("homes.a", "homes.b", "homes.a"))]
    assert [row.domain for row in sources.merge_small_domains(rows)] == ["homes.a", "homes.others", "homes.a"]


def test_added_sources_are_declared_and_pinned() -> None:
    assert tuple(ADDED) == ADDED_SOURCES and not set(ADDED) & set(MINERS)
    for source in ADDED:
        (wheel,), (manifest,) = WHEELS[source], read_manifest(source, WIDE_FOLDER)
        pin = PINS[wheel]
        assert (manifest.wheel, manifest.version, manifest.licence) == (wheel, pin.version, pin.licence)
        assert get_split(source, f"{source}.others") == "train"
    assert get_split("commands", "commands.netappfiles") == "unused", "modules of this vendor are evaluated"
