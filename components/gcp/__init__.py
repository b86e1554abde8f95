"""Google Cloud resources that both back ends have."""
