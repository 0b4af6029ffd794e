"""One module per kind of text: each gives rows from the files of a wheel, which it never imports."""
