"""Records for a reader: tables, pages and the HTML report."""
