"""Our models and collections as mteb knows them."""
