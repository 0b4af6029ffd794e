"""What a run reads: corpora, the graph of the stages built from them, and the views a run works on."""
