"""What the user wants, as values, and what is made of it before anything runs."""
