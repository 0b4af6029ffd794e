"""The paper's data: declared, fetched, verified, read from local copies."""
