"""`python -m tools recover`: state and cloud agree again, after a killed update or with a lost state."""
