"""One module per kind of installed text: each gives rows from the files of a wheel, which it never imports."""
