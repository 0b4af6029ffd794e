"""Presentation of records: tables, Markdown pages and the HTML report."""
