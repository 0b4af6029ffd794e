"""One module per kind of text. Each yields rows from the files of wheels without importing them."""
