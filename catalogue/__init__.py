"""Facts about what Google offers and what things are called: tables, and arithmetic on them."""
