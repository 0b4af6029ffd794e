"""Take leases and find owners in tests where both must exist."""

from pathlib import Path

from repro.storage.lease import Lease, Owner, acquire, get_last_owner


def take_lease(folder: Path) -> Lease:
    """Acquire a lease that must be free."""
    lease = acquire(folder)
    assert lease is not None
    return lease


def find_owner(folder: Path) -> Owner:
    """Return the last owner of a lease."""
    owner = get_last_owner(folder)
    assert owner is not None
    return owner
