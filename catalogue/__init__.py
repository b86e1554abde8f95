"""Facts about Google's products, as tables with arithmetic on them, and the keys of labels."""
